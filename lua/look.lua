-- Asks all that a transfer worker wants to know once a poll interval.
-- It takes or renews the lease as `lead` does, and reads the heads of queues as `heads` does, and whether there is
-- something to do about consumers. The leader tells these which lists have messages, so that none of them has to ask.
-- KEYS queues     SET     queues that hold or held delayed messages
-- KEYS lease      STRING  name of the leader, with a TTL
-- KEYS standby    STRING  name of its standby, with a TTL
-- KEYS second     STRING  name of the second standby, with a TTL
-- KEYS consumers  ZSET    consumer -> end of its lease, ms since the epoch
-- KEYS consumed   HASH    consumer -> what it says of itself, a JSON object
-- KEYS unacked    HASH    delivery tag -> message in hand; kombu's
-- KEYS dues...    ZSET    message -> due time, ms since the epoch; one key a queue and layout; behind them LISTs
-- ARGV name      name of the caller
-- ARGV ttl       of the lease, ms
-- ARGV channels  how the names of the consumers' channels begin
-- ARGV heads     NUMBER  how many of `dues` are no LISTs
-- ARGV told      channel on which consumers hear of the LISTs
-- ARGV listed    names of the LISTs, as JSON; empty for none
-- ARGV lasts     of the leases of consumers, ms
-- ARGV idle...   names of consumers that hold nothing, and whose leases are renewed
-- Returns {what `lead` returns, now, 1 if the lease of a consumer has ended or Redis refuses to say so, 1 if consumers
-- are to be watched, {due time of the head of each of `dues`, or ''}, {JSON list of the queues of a consumer, ...} each
-- once, for the leader while nothing is in hand, {name of each of `idle` that is not fenced off}}; a due time is '0' as
-- in `heads`
-- Atomic: at any moment a lease has at most one holder, and nobody holds two leases.
-- Cost: O(queues + consumers)
-- @unchecked
-- @include clock lease head_due is_watched tell_lists

local taken = take_lease(queues, { lease, standby, second }, name, ttl)
if taken.err then
  return taken
end
local now, due_ms, renewed = now_ms(), {}, {}
for _, consumer in ipairs(idle) do
  local ends = redis.pcall('ZSCORE', consumers, consumer)
  if type(ends) ~= 'table' and ends and tonumber(ends) > 0 then
    redis.pcall('ZADD', consumers, 'XX', now + lasts, consumer)
    renewed[#renewed + 1] = consumer
  end
end
local first = redis.pcall('ZRANGE', consumers, 0, 0, 'WITHSCORES')
local has_ended = first.err or first[2] and tonumber(first[2]) <= now
for i, due in ipairs(dues) do
  due_ms[i] = i <= heads and head_due(due) or nil
end
local watched, abouts = is_watched(consumed, unacked, channels)
local of_consumers, known = {}, {}
if taken[2] == 1 then
  for i = 2, #abouts, 2 do
    local of_one = string.match(abouts[i], '"queues": (%b[])')
    if of_one and not known[of_one] then
      known[of_one] = true
      of_consumers[#of_consumers + 1] = of_one
    end
  end
  tell_lists(told, listed, dues, heads + 1)
end
return { taken, string.format('%.17g', now), has_ended and 1 or 0, watched and 1 or 0, due_ms, of_consumers, renewed }
