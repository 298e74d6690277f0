-- Lets a key rest, and gives the message of its task back as the next one of the key.
-- KEYS unacked_index  ZSET  delivery tag -> time of delivery, s since the epoch; kombu's
-- KEYS unacked        HASH  delivery tag -> message, exchange and routing key; kombu's
-- KEYS places         HASH  delivery tag -> where its place is
-- KEYS ready          LIST  where the message goes that has no place
-- ARGV tag       delivery tag of the message
-- ARGV is_early  FLAG    whether the consumer has acknowledged it, so that it has the only copy
-- ARGV rest      NUMBER  how long the key rests, ms
-- ARGV base, name  how the keys of the queue's sub-queues begin, and the key
-- ARGV message
-- Returns 'rests', or 'gone', with nothing changed, when the consumer holds the message no more
-- Atomic: the message is in hand or waits, never both; no message of the key goes before its rest is over.
-- Cost: O(log N)
-- @include checked_sub_queues clock key_turn places sub_queue

local wrong = wrong_sub(places, base)
if wrong then
  return wrong
end
-- A full Redis refuses a script whose first write needs memory, and lets later writes pass.
if redis.call('HDEL', unacked, tag) == 0 and not is_early then
  return 'gone'
end
redis.call('ZREM', unacked_index, tag)
local sub = sub_queues(base, now_ms())
set_rest(sub, name, sub.now + rest)
write_back(sub)
local end_place, settle = places_in(places)
if not (end_place and end_place(tag, message)) then
  redis.call('RPUSH', ready, message)
end
if settle then
  settle()
end
return 'rests'
