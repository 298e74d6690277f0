-- @include entry names records

-- Removes the records of an id for which `keep` returns false. Cost O(number of records).
local function keep_records(keys, field, value, keep)
  local kept = {}
  for _, record in ipairs(records_of(value)) do
    if keep(record) then
      kept[#kept + 1] = record.bytes
    else
      redis.call('HDEL', keys.ids, NAMED .. record.mark)
    end
  end
  if #kept == 0 then
    redis.call('HDEL', keys.ids, field)
  elseif #kept * RECORD < #value then
    redis.call('HSET', keys.ids, field, table.concat(kept))
  end
end

-- Removes entries from the index. ids: the ids of their messages. Cost O(1) an entry, O(number of records) an id.
local function unindex(keys, entries, ids)
  local fields, leaving, gone = {}, {}, {}
  for i, id in ipairs(ids) do
    local field, mark = field_of(id), mark_of(entries[i])
    if not leaving[field] then
      fields[#fields + 1] = field
      leaving[field] = {}
    end
    leaving[field][mark] = true
    gone[#gone + 1] = NAMED .. mark
  end
  for i, value in ipairs(redis.call('HMGET', keys.ids, unpack(fields))) do
    local marks = leaving[fields[i]]
    if value and #value > RECORD then
      keep_records(keys, fields[i], value, function(record)
        return not marks[record.mark]
      end)
    elseif value and marks[string.sub(value, LENGTH + 1)] then
      gone[#gone + 1] = fields[i]
    end
  end
  redis.call('HDEL', keys.ids, unpack(gone))
end
