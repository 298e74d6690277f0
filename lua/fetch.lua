-- Fetches messages from queues for a consumer, and notes them as unacked.
-- KEYS consumers      ZSET  consumer -> end of its lease, ms since the epoch
-- KEYS unacked_index  ZSET  delivery tag -> time of delivery, s since the epoch; kombu's
-- KEYS unacked        HASH  delivery tag -> message, exchange and routing key; kombu's
-- KEYS paused         HASH  queues that are paused -> since when, ms since the epoch
-- KEYS lists...       LIST  an in-flight list and the list its messages come from, for each pair; then the
-- lists of the queues, step by step of the priorities
-- ARGV consumer   name, '' when no message is to be noted
-- ARGV first      NUMBER  number in the tag of the first message
-- ARGV most       NUMBER  messages to fetch
-- ARGV max_bytes  NUMBER  of messages, after which no further one is fetched
-- ARGV flights    NUMBER  number of pairs
-- ARGV queues     NUMBER  number of queues
-- ARGV turns      FLAG    to serve the queues of a step in turns; else one after the other
-- ARGV names...   queue of each pair, then each queue: its name as JSON, with a '-' before it when its consumer
-- does not acknowledge
-- Returns {number of the routing, message, ...} in the order of the tags, and behind them the numbers of paused queues,
-- each with no message; or 'ended', with nothing fetched, when the consumer's lease has ended
-- Atomic: a message is in its queue or unacked, never in neither. What is left in in-flight lists is next in its queue.
-- Cost: O(most + lists)
-- @unchecked
-- @include clock in_flight routings turns wrong_type

local now = now_ms()

local wrong = wrong_type({ [consumers] = 'zset', [unacked_index] = 'zset', [unacked] = 'hash', [paused] = 'hash' })
if wrong then
  return wrong
end
local routings, rest = routings_of(paused, names, flights)
local ends = consumer ~= '' and redis.call('ZSCORE', consumers, consumer)
local has_ended = consumer ~= '' and not (ends and tonumber(ends) > now)

local now_s = string.format('%.17g', now / 1000)
local fetched, count, size, scores, notes, failed = {}, 0, 0, {}, {}, nil
local function is_full()
  return has_ended or count >= most or size >= max_bytes
end
-- Fetches up to `limit` messages of a list, one by one, because any may be large. Returns how many; nil once full.
local function fetch(ready, number, limit)
  if is_full() then
    return nil
  end
  local before, routing = count, routings[number]
  while routing and count - before < limit and not is_full() do
    local message = redis.pcall('RPOP', ready)
    if type(message) ~= 'string' then
      failed = failed or message and (wrong_type({ [ready] = 'list' }) or message)
      break
    end
    if string.sub(routing, 1, 1) ~= '-' then
      local tag, last = consumer .. '.' .. (first + count), #notes
      scores[last + 1], scores[last + 2] = now_s, tag
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
return has_ended and 'ended' or count == 0 and failed or with(fetched, rest)
