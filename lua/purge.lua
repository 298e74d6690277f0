-- Removes all delayed messages of a queue.
-- KEYS[1-4] keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV[1] counts  key of the queue's counters, which stay
-- Returns number of messages removed
-- Atomic: all or none.
-- Cost: O(1); Redis frees the memory in the background
-- @include counters

local counts = ARGV[1]

local count = redis.call('ZCARD', keys.due)
redis.call('UNLINK', keys.due, keys.bodies, keys.notes, keys.ids)
count_up(counts, { purge = count })
return count
