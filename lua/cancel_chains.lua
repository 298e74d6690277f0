-- Notes ids whose delay chains are to take no further step, and removes some notes that are out of date.
-- KEYS cancelled  ZSET  ids whose chains take no step -> end of that ban, ms since the epoch
-- KEYS chains     ZSET  ids of chains -> due time of the latest step; '' -> inf where chains are in use
-- ARGV ttl     NUMBER  for how long the chains take no step, ms
-- ARGV most    NUMBER  about how many of the latest notes to keep where no use of chains is known
-- ARGV in_use  FLAG    where the caller knows that chains are in use
-- ARGV ids...  of the chains
-- Returns the positions, counted from 1, of the ids whose chains have a step that was due within the last `ttl` or is
-- due later
-- Atomic: `check_chain` stops a step offered after this.
-- Cost: O(log N) an id
-- @include clock

local now = now_ms()

local known = {}
for i, id in ipairs(ids) do
  redis.call('ZADD', cancelled, 'GT', now + ttl, id)
  local due = tonumber(redis.call('ZSCORE', chains, id) or nil)
  if due and due >= now - ttl and due < math.huge then
    known[#known + 1] = i
  end
end
if in_use then
  redis.call('ZADD', chains, 'inf', '')
end
-- A call removes up to twice as many notes as it adds, so that the number of notes falls.
local spare = redis.call('ZCOUNT', cancelled, '-inf', now)
if redis.call('ZCARD', chains) == 0 then
  spare = math.max(spare, redis.call('ZCARD', cancelled) - most)
end
spare = math.min(spare, 2 * #ids)
if spare > 0 then
  redis.call('ZREMRANGEBYRANK', cancelled, 0, spare - 1)
end
-- Another publisher may have noted ids for a longer time.
if redis.call('PTTL', cancelled) < ttl then
  redis.call('PEXPIRE', cancelled, ttl)
end
return known
