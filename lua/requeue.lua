-- Puts messages that consumers hold back into lists of their queues.
-- KEYS[1]    unacked_index  ZSET  delivery tag -> time of delivery, s since the epoch; kombu's
-- KEYS[2]    unacked        HASH  delivery tag -> message, exchange and routing key; kombu's
-- KEYS[3...] ready          LIST  lists of the queues
-- ARGV[1]    place  'next' to be the next to be consumed, the last row first; 'last' to be consumed after all others
-- ARGV[2...] rows of {tag, number of the list from 0, message, key of the queue's counters or '' to count nothing}
-- Returns {tag, tag, ...} of those that were held no more, and that stay where they are
-- Atomic: a message is unacked or in its queue, never in both.
-- Cost: O(rows log N)
-- @include counters

local place = ARGV[1]
local push = place == 'next' and 'RPUSH' or 'LPUSH'

local missing, redelivered = {}, {}
for i = 2, #ARGV, 4 do
  local tag, ready, message, counts = ARGV[i], KEYS[3 + tonumber(ARGV[i + 1])], ARGV[i + 2], ARGV[i + 3]
  -- Needs no memory, so that a full Redis lets the later writes of the script pass.
  if redis.call('HDEL', unacked, tag) == 1 then
    redis.call('ZREM', unacked_index, tag)
    redis.call(push, ready, message)
    redelivered[counts] = (redelivered[counts] or 0) + 1
  else
    table.insert(missing, tag)
  end
end
for counts, number in pairs(redelivered) do
  if counts ~= '' then
    count_for_a_while(counts, { redelivered = number })
  end
end
return missing
