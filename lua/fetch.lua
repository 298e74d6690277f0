-- Fetches messages from queues for a consumer, and notes them as unacked.
-- KEYS[1]    consumers       ZSET        consumer -> end of its lease, ms since the epoch
-- KEYS[2]    unacked_index   ZSET        delivery tag -> time of delivery, s since the epoch; kombu's
-- KEYS[3]    unacked         HASH        delivery tag -> message, exchange and routing key; kombu's
-- KEYS[4]    paused          HASH        queues that are paused -> since when, ms since the epoch
-- KEYS[5...] in_flight, ready  LIST, LIST  an in-flight list and the list its messages come from, for each pair; then
--                                          the lists of the queues, step by step of the priorities
-- ARGV[1]    consumer  name, '' when no message is to be noted
-- ARGV[2]    first     number in the tag of the first message
-- ARGV[3]    most      messages to fetch
-- ARGV[4]    bytes     of messages, after which no further one is fetched
-- ARGV[5]    flights   number of pairs
-- ARGV[6]    queues    number of queues
-- ARGV[7]    turns     1 to serve the queues of a step in turns, 0 to serve them one after the other
-- ARGV[8...] routing   queue of each pair, then each queue: its name as JSON, with a '-' before it when its consumer
--                      does not acknowledge
-- Returns {number of the routing, message, ...} in the order of the tags, and behind them the numbers of paused queues,
-- each with no message; or 'ended', with nothing fetched, when the consumer's lease has ended
-- Atomic: a message is in its queue or unacked, never in neither. What is left in in-flight lists is next in its queue.
-- Cost: O(most + lists)
-- @unchecked
-- @include all_from clock in_flight routings turns wrong_type

local consumer, first, most, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local flights, queues, turns = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local lists = all_from(KEYS, 5)
local now = now_ms()

local wrong = wrong_type({ [consumers] = 'zset', [unacked_index] = 'zset', [unacked] = 'hash', [paused] = 'hash' })
if wrong then
  return wrong
end
local routings, rest = routings_of(paused, all_from(ARGV, 8), flights)
local ends = consumer ~= '' and redis.call('ZSCORE', consumers, consumer)
local has_ended = consumer ~= '' and not (ends and tonumber(ends) > now)

local now_s = string.format('%.17g', now / 1000)
local fetched, count, size, scores, notes, failed = {}, 0, 0, {}, {}, nil
local function is_full()
  return has_ended or count >= most or size >= bytes
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
