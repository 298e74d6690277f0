-- @include ids

-- Leaves of an id's records those for which `keep` is true. Cost O(number of records).
local function keep_records(keys, field, value, keep)
  local kept = {}
  for _, record in ipairs(records_of(value)) do
    if keep(record) then
      kept[#kept + 1] = record.bytes
    else
      redis.call('HDEL', keys.twins, NAMED .. record.mark)
    end
  end
  if #kept == 0 then
    redis.call('HDEL', keys.twins, field)
  elseif #kept * RECORD < #value then
    redis.call('HSET', keys.twins, field, table.concat(kept))
  end
end

-- Forgets where entries are. ids: of their messages. Cost O(1) an entry.
local function unindex(keys, entries, ids)
  local fields, gone = {}, {}
  for i, id in ipairs(ids) do
    fields[i] = field_of(id)
  end
  for i, value in ipairs(redis.call('HMGET', keys.twins, unpack(fields))) do
    local mark = mark_of(entries[i])
    gone[#gone + 1] = NAMED .. mark
    if value and #value > RECORD then -- another entry of this call may be among them
      keep_records(keys, fields[i], redis.call('HGET', keys.twins, fields[i]) or '', function(record)
        return record.mark ~= mark
      end)
    elseif value and string.sub(value, LENGTH + 1) == mark then
      gone[#gone + 1] = fields[i]
    end
  end
  if #gone > 0 then
    redis.call('HDEL', keys.twins, unpack(gone))
  end
end
