-- Keeps the backup list and the index of ids short. Redisson removes each entry that leaves with LREM, which goes
-- through the whole list. Here entries are left in it at first: what is no member of the ZSET any more is garbage,
-- which nobody delivers. When there is much, entries are taken from the head of the list, and those that still wait
-- are put on its tail.
-- @include locate
-- @include tail
-- @include unindex
-- @include large

-- How much garbage there may be beside a share of what waits, and how many entries are read at once, at first and then.
local SHARE, GARBAGE, AT_FIRST, AT_ONCE = 0.3, 500, 8, 64

-- How many records are looked at for each message, which may have two.
local FORGOTTEN = 4

-- Removes garbage from the list, and looks at no more than `budget` entries and about `bytes` of them. Cost O(budget).
local function sweep(keys, budget, bytes)
  local live = redis.call('ZCARD', keys.due)
  local excess = redis.call('LLEN', keys.backup) - live - (live * SHARE + GARBAGE)
  if excess <= 0 then
    return
  end
  local known, is_large = is_tail_known(keys), has_large(keys)
  local at_once = is_large and 1 or AT_FIRST
  while excess > 0 and budget > 0 and bytes > 0 do
    local entries = redis.call('LRANGE', keys.backup, 0, math.min(budget, at_once) - 1)
    local waiting = {}
    for i, due in ipairs(redis.call('ZMSCORE', keys.due, unpack(entries))) do
      bytes = bytes - #entries[i]
      if due then
        waiting[#waiting + 1] = entries[i]
      end
    end
    if not known then
      lose_tail(keys, entries)
    end
    redis.call('LTRIM', keys.backup, #entries, -1)
    if #waiting > 0 then
      redis.call('RPUSH', keys.backup, unpack(waiting))
      keys.tail = keys.tail and mark_of(waiting[#waiting])
    end
    budget, excess = budget - #entries, excess - (#entries - #waiting)
    at_once = is_large and 1 or math.min(2 * at_once, AT_ONCE)
  end
  if known then
    know_tail(keys)
  end
end

-- Whether there is a record of the entry with a mark among those of an id.
local function is_recorded(keys, id, mark)
  for _, record in ipairs(records_of(redis.call('HGET', keys.twins, field_of(id)))) do
    if record.mark == mark then
      return true
    end
  end
  return false
end

-- Removes records of messages that others have transferred or removed, and names that no record needs any more. Looks
-- at a few for each of `count` messages that came or left. Cost O(count * log N).
local function forget(keys, count)
  if count == 0 or redis.call('HLEN', keys.twins) <= 2.5 * redis.call('ZCARD', keys.due) + 2 * GARBAGE then
    return
  end
  local head = tonumber(redis.call('ZRANGE', keys.due, 0, 0, 'WITHSCORES')[2])
  local cursor = redis.call('HGET', keys.order, 'forgotten') or '0'
  local found = redis.call('HSCAN', keys.twins, cursor, 'COUNT', FORGOTTEN * count)
  redis.call('HSET', keys.order, 'forgotten', found[1])
  for i = 1, #found[2], 2 do
    local field, value = found[2][i], found[2][i + 1]
    if string.sub(field, 1, #NAMED) ~= NAMED then
      keep_records(keys, field, value, function(record)
        return tonumber(record.due) >= head and locate(keys.due, record.due, record.mark) ~= nil
      end)
    elseif not is_recorded(keys, value, string.sub(field, #NAMED + 1)) then
      redis.call('HDEL', keys.twins, field)
    end
  end
end
