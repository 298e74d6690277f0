-- Fetches messages from queues for a consumer, and notes them as unacked.
-- KEYS consumers      ZSET  consumer -> end of its lease, ms since the epoch
-- KEYS unacked_index  ZSET  delivery tag -> time of delivery, s since the epoch; kombu's
-- KEYS unacked        HASH  delivery tag -> message, exchange and routing key; kombu's
-- KEYS places         HASH  delivery tag -> where its place is
-- KEYS paused         HASH  queues that are paused -> since when, ms since the epoch
-- KEYS lists...       LIST  an in-flight list and the list its messages come from, for each pair; then the
-- lists of the queues, step by step of the priorities
-- ARGV consumer, channel  name, '' when no message is to be noted, and channel to which it subscribes
-- ARGV first, most        NUMBER  number in the tag of the first message, and messages to fetch
-- ARGV free, max_bytes, flights, queues  NUMBER  messages to fetch of those that take a place; bytes after which no
-- further one is fetched; number of pairs, and of queues
-- ARGV turns              FLAG    to serve the queues of a step in turns; else one after the other
-- ARGV rows...  {name, base}  queue of each pair, then each queue: its name as JSON, with a '-' before it when its
-- consumer does not acknowledge; and how its further keys begin
-- Returns {number of a routing, message, ...} in the order of the tags; the numbers of paused queues, each with false;
-- 0 and in how many ms to ask again, '' for once a process is free. Or 'ended', and nothing more, without a lease
-- Atomic: a message is in its queue or unacked, never in neither. What is left in in-flight lists is next in its queue.
-- Cost: O(most + lists)
-- @unchecked
-- @include clock gate in_flight routings turns wrong_type

local wrong = wrong_type({ [consumers] = 'zset', [unacked_index] = 'zset', [unacked] = 'hash', [paused] = 'hash' })
if wrong then
  return wrong
end
local to = { now = now_ms(), consumer = consumer, channel = channel, free = free, flights = flights, queues = queues }
local ends = consumer ~= '' and redis.call('ZSCORE', consumers, consumer)
local has_ended = consumer ~= '' and not (ends and tonumber(ends) > to.now)
to.lists, to.routings, to.bases, to.rest = lists, routings_of(paused, rows, flights)
local gate = not has_ended and gate_of(places, to)
if gate and gate.err then
  return gate
end

local fetched, count, size, scores, notes, failed = {}, 0, 0, {}, {}, nil
local function is_full()
  return has_ended or count >= most or size >= max_bytes
end
-- Fetches up to `limit` messages of a list, one by one, because any may be large. Returns how many; nil once full.
local function fetch(ready, number, limit)
  if is_full() then
    return nil
  end
  local before, routing = count, to.routings[number]
  while routing and count - before < limit and not is_full() do
    local tag = string.sub(routing, 1, 1) ~= '-' and consumer .. '.' .. (first + count) or nil
    local message = gate and gate.take(number, ready, tag) or not gate and redis.pcall('RPOP', ready)
    if type(message) ~= 'string' then
      failed = failed or message and (wrong_type({ [ready] = 'list' }) or message)
      break
    end
    if tag then
      local last = #notes
      scores[last + 1], scores[last + 2] = string.format('%.17g', to.now / 1000), tag
      notes[last + 1], notes[last + 2] = tag, '[' .. message .. ',"",' .. routing .. ']'
    end
    fetched[2 * count + 1], fetched[2 * count + 2] = number, message
    count, size = count + 1, size + #message
  end
  return count - before
end
for pair = 1, flights do
  fetch(lists[2 * pair - 1], pair, most)
end
for place = 2 * flights, #lists - 1, math.max(queues, 1) do
  in_turns(queues, turns and queues > 1 and 1 or math.max(most, 1), function(queue, limit)
    return fetch(lists[place + queue], flights + queue, limit)
  end)
end
if #notes > 0 then
  redis.call('ZADD', unacked_index, unpack(scores))
  redis.call('HSET', unacked, unpack(notes))
end
for pair = 1, flights do
  put_back(lists[2 * pair - 1], lists[2 * pair])
end
local again = gate and gate.settle(not is_full())
fetched = with(with(fetched, to.rest), again and { 0, again } or {})
return has_ended and 'ended' or count == 0 and failed or fetched
