-- Removes all delayed messages of a queue.
-- KEYS[1] due     ZSET         message -> due time, ms since the epoch
-- KEYS[2] bodies  HASH|LIST    bodies of the messages
-- KEYS[3] notes   STRING|HASH  count of messages marked, and more
-- KEYS[4] ids     ZSET|HASH    ids of duplicates, or index of messages by id
-- ARGV[1] counts  key of the queue's counters, which stay
-- Returns number of messages removed
-- Atomic: all or none.
-- Cost: O(1); Redis frees the memory in the background
-- @include counters wrong_type

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local counts = ARGV[1]

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end
local count = redis.call('ZCARD', keys.due)
redis.call('UNLINK', keys.due, keys.bodies, keys.notes, keys.ids)
count_up(counts, { purge = count })
return count
