-- Forgets queues that have been empty and unused for long.
-- KEYS[1] queues  SET   queues that hold or held delayed messages
-- KEYS[2] used    ZSET  the same queues -> when each was last seen in use, ms since the epoch
-- KEYS[3...] key  ZSET  five a queue: due, backup, order and twins of the default form, and due of Redisson's or again
-- of the default one
-- ARGV[1] after   ms for which a queue has to be unused, 0 for one that is to be forgotten if it is empty
-- ARGV[2...] three a queue: name; channel on which JVM services hear of its new heads, or '' not to ask; how many of
-- those who hear it do not count
-- Returns names of the queues forgotten
-- Atomic: a queue with a message keeps its name. A publisher that makes it known after its message is there, or again,
-- comes after this.
-- Cost: O(log queues) a queue
-- @include clock
-- @include wrong_type

-- Into how many parts of `after` the time of last use is rounded; how many times `after` that of a name is kept that
-- has left in another way, and how many such names one call removes.
local SHARE, KEPT_FOR, AT_ONCE = 24, 3, 100

local queues, used = KEYS[1], KEYS[2]
local after = tonumber(ARGV[1])
local now = now_ms()

local wrong = wrong_type({ [queues] = 'set', [used] = 'zset' })
if wrong then
  return wrong
end

local function is_there(key)
  return redis.call('TYPE', key).ok ~= 'none'
end

local function is_heard(channel, of_ours)
  local found = channel ~= '' and redis.pcall('PUBSUB', 'NUMSUB', channel) or { channel, 0 }
  return found.err ~= nil or found[2] > tonumber(of_ours) -- who may not ask forgets none
end

local function forget(name, order, twins)
  redis.call('SREM', queues, name)
  redis.call('ZREM', used, name)
  if not wrong_type({ [order] = 'string', [twins] = 'zset' }) then
    redis.call('UNLINK', order, twins)
  end
end

local forgotten = {}
for first = 3, #KEYS, 5 do
  local n = (first - 3) / 5 * 3
  local name, channel, of_ours = ARGV[2 + n], ARGV[3 + n], ARGV[4 + n]
  local due, backup, order, twins, other = unpack(KEYS, first, first + 4)
  local last = tonumber(redis.call('ZSCORE', used, name) or nil)
  local is_used = is_there(due) or is_there(backup) or is_there(other) or is_heard(channel, of_ours)
  if not is_used and (after == 0 or last and now - last >= after) then
    forget(name, order, twins)
    forgotten[#forgotten + 1] = name
  elseif not last or is_used and now - last > after / SHARE then
    redis.call('ZADD', used, now, name)
  end
end
local left = redis.call('ZCOUNT', used, '-inf', now - KEPT_FOR * after)
if after > 0 and left > 0 then
  redis.call('ZREMRANGEBYRANK', used, 0, math.min(left, AT_ONCE) - 1)
end
return forgotten
