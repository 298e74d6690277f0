-- Makes a queue known to the transfer workers, where Redis lets it.
-- KEYS[1] queues  SET  queues that hold or held delayed messages
-- ARGV[1] queue  name
-- Returns 'known', or 'refused' with nothing changed: Redis is full, or the user has no right to it
-- Atomic: the queue is known when this returns 'known'.
-- Cost: O(1)

local queues = KEYS[1]
local queue = ARGV[1]

-- The caller has just brought a message into the queue. An error reply would look as if that had failed.
local done = redis.pcall('SADD', queues, queue)
return type(done) == 'table' and done.err and 'refused' or 'known'
