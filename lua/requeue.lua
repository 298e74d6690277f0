-- Puts messages that consumers hold back into lists of their queues.
-- KEYS unacked_index  ZSET  delivery tag -> time of delivery, s since the epoch; kombu's
-- KEYS unacked        HASH  delivery tag -> message, exchange and routing key; kombu's
-- KEYS places         HASH  delivery tag -> where its place is
-- KEYS ready...       LIST  lists of the queues
-- ARGV place  'next' to be the next to be consumed, the last row first; 'last' to be consumed after all others
-- ARGV rows...  {tag, list, message, counts}  number of the list from 0; key of the queue's counters or '' to count
-- nothing
-- Returns {tag, tag, ...} of those that were held no more, and that stay where they are
-- Atomic: a message is unacked or in its queue, never in both.
-- Cost: O(rows log N)
-- @include counters places

local push = place == 'next' and 'RPUSH' or 'LPUSH'

local missing, redelivered, end_place, settle = {}, {}, places_in(places)
for _, row in ipairs(rows) do
  -- Needs no memory, so that a full Redis lets the later writes of the script pass.
  if redis.call('HDEL', unacked, row.tag) == 1 then
    redis.call('ZREM', unacked_index, row.tag)
    local is_kept = end_place and end_place(row.tag, place == 'next' and row.message or nil) and place == 'next'
    if not is_kept then
      redis.call(push, ready[row.list + 1], row.message)
    end
    redelivered[row.counts] = (redelivered[row.counts] or 0) + 1
  else
    table.insert(missing, row.tag)
  end
end
if settle then
  settle()
end
for counts, number in pairs(redelivered) do
  if counts ~= '' then
    count_for_a_while(counts, { redelivered = number })
  end
end
return missing
