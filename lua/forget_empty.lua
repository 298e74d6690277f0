-- Clears away what is left of a queue that has no messages.
-- KEYS[1] timeout ZSET    due times of Redisson's layout or, where that is not looked at, `due` again
-- KEYS[2] due     ZSET    message -> due time, ms since the epoch
-- KEYS[3] bodies  HASH    bodies of the messages
-- KEYS[4] notes   STRING  count of messages marked, and more
-- KEYS[5] ids     ZSET    ids of duplicates
-- KEYS[6...] ready  LIST  the queue's lists, one a priority step
-- ARGV[1] counts  key of the queue's counters, which are kept for a while
-- Returns 'used' when the queue has messages or 'empty'
-- Atomic: nothing is cleared away of a queue with a message.
-- Cost: O(1)
-- @unchecked
-- @include counters wrong_type

local counts = ARGV[1]

if redis.call('EXISTS', timeout, due, bodies, unpack(KEYS, 6)) > 0 then
  return 'used'
end
if not wrong_type({ [notes] = 'string', [ids] = 'zset' }) then
  redis.call('UNLINK', notes, ids)
end
keep_counts(counts, COUNTS_KEPT)
return 'empty'
