-- Keeps the index of ids short.
-- @include names records sweep unindex zset

-- How many fields of `ids` are looked at for each message that came or left; a message may have two.
local FORGOTTEN = 4

-- Whether an id has a record of the entry with this mark.
local function is_recorded(keys, id, mark)
  for _, record in ipairs(records_of(redis.call('HGET', keys.ids, field_of(id)))) do
    if record.mark == mark then
      return true
    end
  end
  return false
end

-- Removes records of messages that other clients have transferred or removed, and names that no record needs any more.
-- Looks at FORGOTTEN fields for each of `count` messages that came or left. Cost O(count * log N).
local function forget(keys, count)
  if count == 0 or redis.call('HLEN', keys.ids) <= 2.5 * redis.call('ZCARD', keys.due) + 2 * GARBAGE then
    return
  end
  local head = tonumber(redis.call('ZRANGE', keys.due, 0, 0, 'WITHSCORES')[2])
  local cursor = redis.call('HGET', keys.notes, 'forgotten') or '0'
  local found = redis.call('HSCAN', keys.ids, cursor, 'COUNT', FORGOTTEN * count)
  redis.call('HSET', keys.notes, 'forgotten', found[1])
  for i = 1, #found[2], 2 do
    local field, value = found[2][i], found[2][i + 1]
    if string.sub(field, 1, #NAMED) ~= NAMED then
      keep_records(keys, field, value, function(record)
        return tonumber(record.due) >= head and locate(keys.due, record.due, record.mark) ~= nil
      end)
    elseif not is_recorded(keys, value, string.sub(field, #NAMED + 1)) then
      redis.call('HDEL', keys.ids, field)
    end
  end
end
