-- Keeps the backup list and the index of ids short. Redisson removes each entry that leaves with LREM, which goes
-- through the whole list. Here entries are left in it at first: what is no member of the ZSET any more is garbage,
-- which nobody delivers. When there is much, entries are taken from the head of the list, and those that still wait
-- are put on its tail.
-- @include tail
-- @include unindex

-- How much garbage there may be beside a share of what waits, and how many entries are looked at at once.
local SHARE, GARBAGE, AT_ONCE = 0.3, 500, 500

-- Removes garbage from the list, and looks at no more than `budget` entries. Cost O(budget).
local function sweep(keys, budget)
  local live = redis.call('ZCARD', keys.due)
  local excess = redis.call('LLEN', keys.backup) - live - (live * SHARE + GARBAGE)
  if excess <= 0 then
    return
  end
  local known = is_tail_known(keys)
  while excess > 0 and budget > 0 do
    local entries = redis.call('LRANGE', keys.backup, 0, math.min(budget, AT_ONCE) - 1)
    local waiting = {}
    for i, due in ipairs(redis.call('ZMSCORE', keys.due, unpack(entries))) do
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
    end
    budget, excess = budget - #entries, excess - (#entries - #waiting)
  end
  if known then
    know_tail(keys)
  end
end

-- Removes records of messages that others have transferred: their due time is before that of all that wait. Looks at
-- about `budget` of them. Cost O(budget).
local function forget(keys, budget)
  if redis.call('HLEN', keys.twins) <= 2.5 * redis.call('ZCARD', keys.due) + 2 * GARBAGE then
    return
  end
  local head = tonumber(redis.call('ZRANGE', keys.due, 0, 0, 'WITHSCORES')[2])
  local cursor = redis.call('HGET', keys.order, 'forgotten') or '0'
  local found = redis.call('HSCAN', keys.twins, cursor, 'COUNT', budget)
  redis.call('HSET', keys.order, 'forgotten', found[1])
  for i = 1, #found[2], 2 do
    if string.sub(found[2][i], 1, #NAMED) ~= NAMED then
      keep_records(keys, found[2][i], found[2][i + 1], function(record)
        return tonumber(record.due) >= head
      end)
    end
  end
end
