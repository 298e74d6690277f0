-- Removes all delayed messages of a queue.
-- KEYS[1] due     ZSET    message -> due time, ms since the epoch
-- KEYS[2] backup  HASH    id -> message
-- KEYS[3] order   STRING  count of messages marked so far
-- KEYS[4] twins   ZSET    ids of messages stored beside another of the same id
-- Returns number of messages removed
-- Atomic: all or none.
-- Cost: O(1); Redis frees the memory in the background
-- @include wrong_type

local due, backup, order, twins = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local wrong = wrong_type({ [due] = 'zset', [backup] = 'hash', [order] = 'string', [twins] = 'zset' })
if wrong then
  return wrong
end
local count = redis.call('ZCARD', due)
redis.call('UNLINK', due, backup, order, twins)
return count
