-- Takes messages from queues for a consumer, and notes them as unacked.
-- KEYS[1]    consumers       ZSET        consumer -> end of its lease, ms since the epoch
-- KEYS[2]    unacked_index   ZSET        delivery tag -> time of delivery, s since the epoch; kombu's
-- KEYS[3]    unacked         HASH        delivery tag -> message, exchange and routing key; kombu's
-- KEYS[4...] landing, ready  LIST, LIST  a landing list and the list its messages come from, for each pair; then the
--                                        lists of the queues, step by step of the priorities
-- ARGV[1]    consumer  name, '' when no message is to be noted
-- ARGV[2]    first     number in the tag of the first message
-- ARGV[3]    most      messages to take
-- ARGV[4]    landed    number of pairs
-- ARGV[5]    queues    number of queues
-- ARGV[6]    turns     1 to serve the queues of a step in turns, 0 to serve them one after the other
-- ARGV[7...] routing   queue of each pair, then each queue: its name as JSON, '' when its consumer does not acknowledge
-- Returns {number of the routing, message, ...} in the order of the tags; or 'ended', with nothing taken, when the
-- consumer's lease has ended
-- Atomic: a message is in its queue or unacked, never in neither. What is left in landing lists is next in its queue.
-- Cost: O(most + lists)
-- @include clock landing turns wrong_type

local consumers, unacked_index, unacked = KEYS[1], KEYS[2], KEYS[3]
local consumer, first, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local landed, queues, turns = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'
local lists, routing = { unpack(KEYS, 4) }, { unpack(ARGV, 7) }
local now = now_ms()

local wrong = wrong_type({ [consumers] = 'zset', [unacked_index] = 'zset', [unacked] = 'hash' })
if wrong then
  return wrong
end
local ends = consumer ~= '' and redis.call('ZSCORE', consumers, consumer)
local has_ended = consumer ~= '' and not (ends and tonumber(ends) > now)

local taken, count, scores, notes, failed = {}, 0, {}, {}, nil
-- Takes up to `limit` messages of a list. Returns how many.
local function take(ready, number, limit)
  limit = math.min(limit, most - count)
  if limit <= 0 or has_ended then
    return 0
  end
  local messages = redis.pcall('RPOP', ready, limit)
  if not messages or messages.err then
    failed = failed or messages and (wrong_type({ [ready] = 'list' }) or messages)
    return 0
  end
  for _, message in ipairs(messages) do
    if routing[number] ~= '' then
      local tag = consumer .. '.' .. (first + count)
      table.insert(scores, now / 1000)
      table.insert(scores, tag)
      table.insert(notes, tag)
      table.insert(notes, '[' .. message .. ',"",' .. routing[number] .. ']')
    end
    count = count + 1
    table.insert(taken, number)
    table.insert(taken, message)
  end
  return #messages
end

for pair = 1, landed do
  take(lists[2 * pair - 1], pair, most)
end
for place = 2 * landed, #lists - 1, math.max(queues, 1) do
  in_turns(queues, turns and queues > 1 and 1 or math.max(most, 1), function(queue, limit)
    return take(lists[place + queue], landed + queue, limit)
  end)
end
if #notes > 0 then
  redis.call('ZADD', unacked_index, unpack(scores))
  redis.call('HSET', unacked, unpack(notes))
end
for pair = 1, landed do
  put_back(lists[2 * pair - 1], lists[2 * pair])
end
if has_ended then
  return 'ended'
end
return count == 0 and failed or taken
