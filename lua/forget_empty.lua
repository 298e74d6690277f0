-- Clears away what is left of a queue that has no messages.
-- KEYS timeout   ZSET    due times of Redisson's layout or, where that is not looked at, `due` again
-- KEYS due       ZSET    message -> due time, ms since the epoch
-- KEYS bodies    HASH    bodies of the messages
-- KEYS notes     STRING  count of messages marked, and more
-- KEYS ids       ZSET    ids of duplicates
-- KEYS ready...  LIST    the queue's lists, one a priority step
-- ARGV counts  key of the queue's counters
-- Returns 'used' when the queue has messages or 'empty'
-- Atomic: nothing is cleared away of a queue with a message.
-- Cost: O(1)
-- @unchecked
-- @include counters wrong_type

if redis.call('EXISTS', timeout, due, bodies, unpack(ready)) > 0 then
  return 'used'
end
if not wrong_type({ [notes] = 'string', [ids] = 'zset' }) then
  redis.call('UNLINK', notes, ids)
end
keep_counts(counts, COUNTS_KEPT)
return 'empty'
