-- Renews the lease of a consumer, and the times of the messages that it holds.
-- KEYS consumers      ZSET  consumer -> end of its lease, ms since the epoch; 0 once it is fenced off
-- KEYS consumed       HASH  consumer -> what it says of itself, a JSON object
-- KEYS unacked_index  ZSET  delivery tag -> time of delivery, s since the epoch; kombu's
-- ARGV consumer  name
-- ARGV ttl       NUMBER  of the lease, ms
-- ARGV about     what it says of itself, a JSON object
-- ARGV is_new    FLAG    for a name that has no lease yet
-- ARGV tags...   of the messages that it holds
-- Returns 'renewed'; or 'ended', with nothing changed, when the consumer is fenced off or unknown
-- Atomic: a consumer renews its lease, also late, or is fenced off.
-- Cost: O(tags log N)
-- @unchecked
-- @include clock wrong_type

local now = now_ms()

-- The types are asked for only after an error, or where they matter, because every consumer calls this all the time.
local ends = redis.pcall('ZSCORE', consumers, consumer)
local failed = type(ends) == 'table' and (wrong_type({ [consumers] = 'zset' }) or ends)
  or #tags > 0 and wrong_type({ [unacked_index] = 'zset' })
if failed then
  return failed
end
if ends and tonumber(ends) <= 0 or not (ends or is_new) then
  return 'ended'
end
-- A full Redis refuses a script whose first write needs memory, and lets later writes pass.
local done = redis.pcall('HDEL', consumed, consumer)
if type(done) == 'table' then
  return wrong_type({ [consumed] = 'hash' }) or done
end
redis.call('HSET', consumed, consumer, about)
redis.call('ZADD', consumers, now + ttl, consumer)
for _, tag in ipairs(tags) do
  redis.call('ZADD', unacked_index, 'XX', now / 1000, tag)
end
return 'renewed'
