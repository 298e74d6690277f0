-- Asks all that a transfer worker wants to know once a poll interval.
-- It takes or renews the lease as `lead` does, and reads the heads of queues as `heads` does, and whether there is
-- something to do about consumers.
-- KEYS queues     SET     queues that hold or held delayed messages
-- KEYS lease      STRING  name of the leader, with a TTL
-- KEYS standby    STRING  name of its standby, with a TTL
-- KEYS second     STRING  name of the second standby, with a TTL
-- KEYS consumers  ZSET    consumer -> end of its lease, ms since the epoch
-- KEYS consumed   HASH    consumer -> what it says of itself, a JSON object
-- KEYS unacked    HASH    delivery tag -> message in hand; kombu's
-- KEYS dues...    ZSET    message -> due time, ms since the epoch; one key a queue and layout
-- ARGV name      name of the caller
-- ARGV ttl       of the lease, ms
-- ARGV channels  how the names of the consumers' channels begin
-- Returns {what `lead` returns, now, 1 if the lease of a consumer has ended or Redis refuses to say so, 1 if consumers
-- are to be watched, {due time of the head of each of `dues`, or ''}}; a due time is '0' as in `heads`
-- Atomic: at any moment a lease has at most one holder, and nobody holds two leases.
-- Cost: O(queues + consumers)
-- @unchecked
-- @include clock lease head_due is_watched

local taken = take_lease(queues, { lease, standby, second }, name, ttl)
if taken.err then
  return taken
end
local now, heads = now_ms(), {}
local first = redis.pcall('ZRANGE', consumers, 0, 0, 'WITHSCORES')
local has_ended = first.err or first[2] and tonumber(first[2]) <= now
for i, due in ipairs(dues) do
  heads[i] = head_due(due)
end
local watched = is_watched(consumed, unacked, channels)
return { taken, string.format('%.17g', now), has_ended and 1 or 0, watched and 1 or 0, heads }
