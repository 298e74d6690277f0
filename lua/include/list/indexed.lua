-- @include ids

-- Whether the index of ids has an entry with this due time. Returns also the records of other messages of its id.
-- Cost O(number of records).
local function is_indexed(keys, id, due, entry)
  local others, is_known = {}, false
  for _, record in ipairs(records_of(redis.call('HGET', keys.twins, field_of(id)))) do
    if record.mark ~= mark_of(entry) then
      others[#others + 1] = record.bytes
    else -- unless somebody has given it another due time
      is_known = is_known or tonumber(record.due) == tonumber(due)
    end
  end
  return is_known, table.concat(others)
end
