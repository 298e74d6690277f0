-- Forgets queues that have been empty and unused for long.
-- KEYS[1]    queues  SET   queues that hold or held delayed messages
-- KEYS[2]    used    ZSET  the same queues -> time of last use, ms since the epoch
-- KEYS[3...] due, bodies, notes, ids, other  ZSET, HASH, STRING, ZSET, ZSET  five a queue: the keys of the
-- default layout, and `due` of Redisson's layout or, where that is not counted, of the default one again
-- ARGV[1] after  for how many ms a queue has to be unused; 0 forgets one that is empty
-- ARGV[2] wake   channel to which each transfer worker subscribes that hears of new heads
-- ARGV[3] kept   for how many ms the counters of a queue are kept that is forgotten at once, 0 for good
-- ARGV[4...] four a queue: name; key of its counters; channel on which JVM services hear of its new heads, or '' for
-- none; '1' if transfer workers subscribe to that as well: as many of its subscribers as `wake` has do not count
-- Returns names of the queues forgotten
-- Atomic: a queue with a message keeps its name. A publisher stores its message first and makes the queue known after,
-- so a queue that is forgotten in between is known again.
-- Cost: O(log queues) a queue
-- @include clock tally wrong_type

-- The time of last use is noted anew when it is older than `after` / SHARE.
local SHARE = 24

-- A name may leave `queues` in another way; its time of last use is then kept for KEPT_FOR times `after`. A call
-- removes at most AT_ONCE such times.
local KEPT_FOR, AT_ONCE = 3, 100

local queues, used = KEYS[1], KEYS[2]
local after, wake, kept = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local now = now_ms()

local wrong = wrong_type({ [queues] = 'set', [used] = 'zset' })
if wrong then
  return wrong
end

local function is_there(key)
  return redis.call('TYPE', key).ok ~= 'none'
end

local function is_heard(channel, with_ours)
  local found = channel ~= '' and redis.pcall('PUBSUB', 'NUMSUB', channel, wake) or { channel, 0, wake, 0 }
  -- A user whose ACL forbids the question forgets no queue.
  return found.err ~= nil or found[2] > (with_ours == '1' and found[4] or 0)
end

local function forget(name, counts, notes, ids)
  redis.call('SREM', queues, name)
  redis.call('ZREM', used, name)
  if not wrong_type({ [notes] = 'string', [ids] = 'zset' }) then
    redis.call('UNLINK', notes, ids)
  end
  forget_counts(counts, after == 0, kept)
end

local forgotten = {}
for first = 3, #KEYS, 5 do
  local n = (first - 3) / 5 * 4
  local name, counts, channel, with_ours = ARGV[4 + n], ARGV[5 + n], ARGV[6 + n], ARGV[7 + n]
  local due, bodies, notes, ids, other = unpack(KEYS, first, first + 4)
  local last = tonumber(redis.call('ZSCORE', used, name) or nil)
  local is_used = is_there(due) or is_there(bodies) or is_there(other) or is_heard(channel, with_ours)
  if not is_used and (after == 0 or last and now - last >= after) then
    forget(name, counts, notes, ids)
    forgotten[#forgotten + 1] = name
  else
    renew_counts(counts, is_there(due) and due or other, kept)
    if not last or is_used and now - last > after / SHARE then
      redis.call('ZADD', used, now, name)
    end
  end
end
local left = redis.call('ZCOUNT', used, '-inf', now - KEPT_FOR * after)
if after > 0 and left > 0 then
  redis.call('ZREMRANGEBYRANK', used, 0, math.min(left, AT_ONCE) - 1)
end
return forgotten
