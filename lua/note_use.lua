-- Notes that a queue is in use, so that it is not forgotten; for a queue in another slot than the names of all queues.
-- KEYS[1] queues  SET   queues that hold or held delayed messages
-- KEYS[2] used    ZSET  the same queues -> time of last use, ms since the epoch
-- ARGV[1] queue  name
-- ARGV[2] known  1 to add the queue to `queues`, too
-- Returns 'noted'
-- Atomic: all or nothing.
-- Cost: O(log N)
-- @include clock wrong_type

local queues, used = KEYS[1], KEYS[2]
local queue, known = ARGV[1], ARGV[2] == '1'

local wrong = wrong_type({ [queues] = 'set' })
if wrong then
  return wrong
end
if known then
  redis.call('SADD', queues, queue)
end
redis.pcall('ZADD', used, 'XX', 'GT', now_ms(), queue) -- where the ACL forbids it, the queue is used all the same
return 'noted'
