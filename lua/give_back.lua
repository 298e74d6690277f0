-- Puts a message back to where a consumer took it from and could not keep it.
-- KEYS[1] ready  LIST  one of the queue's lists
-- ARGV[1] body   the message
-- Returns length of the list
-- Atomic: the message is the next to be consumed when this returns.
-- Cost: O(1)

local ready = KEYS[1]
local body = ARGV[1]

-- A full Redis refuses the first write of a script that needs memory, and lets later ones pass. What was just
-- taken fits in again, so a write that needs none, and changes nothing, goes first.
redis.call('LTRIM', ready, 0, -1)
return redis.call('RPUSH', ready, body)
