-- Notes that a queue is in use: it neither expires nor is forgotten.
-- KEYS[1] due     ZSET         message -> due time, ms since the epoch
-- KEYS[2] bodies  HASH|LIST    bodies of the messages
-- KEYS[3] notes   STRING|HASH  count of messages marked, and more
-- KEYS[4] ids     ZSET|HASH    ids of twins, or index of messages by id
-- KEYS[5] queues  SET          queues that hold or held delayed messages
-- KEYS[6] used    ZSET         the same queues -> time of last use, ms since the epoch. Neither is given where they are
-- in another slot, see note_use.lua
-- ARGV[1] expire  ms after which an unused queue expires, 0 for never
-- ARGV[2] queue   name
-- ARGV[3] known   1 to add the queue to `queues`, too
-- ARGV[4] counts  key of the queue's counters
-- Returns 'kept', or 'empty' when the queue has no `due` key
-- Atomic: no key ends sooner than before, nor sooner than `expire` ms after the latest message is due.
-- Cost: O(log N)
-- @include clock lifetime tally wrong_type

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local queues, used = KEYS[5], KEYS[6]
local expire, queue, known, counts = tonumber(ARGV[1]), ARGV[2], ARGV[3] == '1', ARGV[4]
local now = now_ms()

local wrong = wrong_stored(keys) or queues and wrong_type({ [queues] = 'set' })
if wrong then
  return wrong
end
if queues and known then
  redis.call('SADD', queues, queue)
end
if used then
  redis.pcall('ZADD', used, 'XX', 'GT', now, queue) -- where the ACL forbids it, the queue is kept alive all the same
end
keep_counts(counts, expire > 0 and ahead(keys, now) + expire or 0)
local life = life_of(keys, now, expire)
if life.left == -2 then
  return 'empty'
end
live_on(keys, life, now)
return 'kept'
