-- Removes all delayed messages of a queue.
-- KEYS[1] due     ZSET    message -> due time, ms since the epoch
-- KEYS[2] backup  HASH    id -> message
-- KEYS[3] order   STRING  count of messages marked so far
-- KEYS[4] twins   ZSET    ids of messages stored beside another of the same id
-- Returns number of messages removed
-- Atomic: all or none.
-- Cost: O(1); Redis frees the memory in the background
-- @include wrong_type

local keys = { due = KEYS[1], backup = KEYS[2], order = KEYS[3], twins = KEYS[4] }

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end
local count = redis.call('ZCARD', keys.due)
redis.call('UNLINK', keys.due, keys.backup, keys.order, keys.twins)
return count
