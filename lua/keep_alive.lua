-- Notes that a queue is in use, so that neither its messages nor its counters expire.
-- KEYS[1] due     ZSET         message -> due time, ms since the epoch
-- KEYS[2] bodies  HASH|LIST    bodies of the messages
-- KEYS[3] notes   STRING|HASH  count of messages marked, and more
-- KEYS[4] ids     ZSET|HASH    ids of duplicates, or index of messages by id
-- ARGV[1] expire  ms after which an unused queue expires, 0 for never
-- ARGV[2] counts  key of the queue's counters
-- Returns 'kept', or 'empty' when the queue has no `due` key
-- Atomic: no key ends sooner than before, nor sooner than `expire` ms after the latest message is due.
-- Cost: O(log N)
-- @include clock counters lifetime wrong_type

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local expire, counts = tonumber(ARGV[1]), ARGV[2]
local now = now_ms()

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end
local life = life_of(keys, now, expire)
if life.left == -2 then
  local ends = redis.pcall('PTTL', counts)
  if expire > 0 or type(ends) == 'number' and ends > 0 then
    keep_counts(counts, expire > 0 and expire or COUNTS_KEPT)
  end
  return 'empty'
end
keep_counts(counts, expire > 0 and ahead(keys, now) + expire or 0)
live_on(keys, life, now)
return 'kept'
