-- Notes ids whose delay chains are to take no further step, and forgets some that were noted long ago.
-- KEYS[1] cancelled  ZSET  ids whose chains take no step -> until when, ms since the epoch
-- ARGV[1] ttl        for how long, ms
-- ARGV[2...] one a chain: id
-- Returns number of ids that were not noted before
-- Atomic: a step offered after this is refused.
-- Cost: O(log N) an id
-- @include clock
-- @include wrong_type

local cancelled = KEYS[1]
local ttl = tonumber(ARGV[1])
local now = now_ms()

local wrong = wrong_type({ [cancelled] = 'zset' })
if wrong then
  return wrong
end
-- More than can be added in one call, so that they become fewer.
local expired = math.min(redis.call('ZCOUNT', cancelled, '-inf', now), 2 * #ARGV)
if expired > 0 then
  redis.call('ZREMRANGEBYRANK', cancelled, 0, expired - 1)
end
local added = 0
for i = 2, #ARGV do
  added = added + redis.call('ZADD', cancelled, 'GT', now + ttl, ARGV[i])
end
-- Another publisher may have noted ids for longer.
if redis.call('PTTL', cancelled) < ttl then
  redis.call('PEXPIRE', cancelled, ttl)
end
return added
