-- Asks whether a delay chain may take its next step, and notes the step.
-- KEYS cancelled  ZSET  ids whose chains take no step -> end of that ban, ms since the epoch
-- KEYS chains     ZSET  ids of chains -> due time of the latest step; '' -> inf where chains are in use
-- ARGV ttl       NUMBER  for how many ms after its due time a step may still run
-- ARGV most      NUMBER  how many past due times `chains` keeps, the latest ones
-- ARGV identity
-- ARGV due       ms since the epoch, or '+' and ms from now
-- Returns 'ready', or 'cancelled' with no step noted
-- Atomic: a chain that is cancelled later is known by then. A caller that stores a step asks before and again after.
-- Cost: O(log N)
-- @include clock

local now = now_ms()

if tonumber(redis.call('ZSCORE', cancelled, identity) or 0) > now then
  redis.call('ZREM', chains, identity) -- the chain has ended
  return 'cancelled'
end
-- 'GT' keeps the 'inf' of '' where a chain has an empty id. Up to two ids leave for one that comes, so that the number
-- of ids falls.
redis.call('ZADD', chains, 'GT', 'inf', '', at(due, now), identity)
local ended = redis.call('ZCOUNT', chains, '-inf', now - ttl)
local spare = math.min(math.max(ended, redis.call('ZCOUNT', chains, '-inf', now) - most), 2)
if spare > 0 then
  redis.call('ZREMRANGEBYRANK', chains, 0, spare - 1)
end
return 'ready'
