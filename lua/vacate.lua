-- Looks whether a queue has messages, and clears away what is left of one that has none; see `forget`.
-- KEYS[1] due     ZSET    message -> due time, ms since the epoch
-- KEYS[2] bodies  HASH    bodies of the messages
-- KEYS[3] notes   STRING  count of messages marked, and more
-- KEYS[4] ids     ZSET    ids of twins
-- KEYS[5] other   ZSET    `due` of Redisson's layout or, where that is not counted, of the default one again
-- ARGV[1] how     'look' to clear nothing away; 'at_once' to keep the counters for a while; 'unused' to remove them
-- ARGV[2] kept    for how many ms the counters are kept, 0 for good
-- ARGV[3] counts  key of the queue's counters
-- Returns 'used' when the queue has messages, or 'vacant'
-- Atomic: nothing is cleared away of a queue with a message.
-- Cost: O(1)
-- @include tally wrong_type

local due, bodies, notes, ids, other = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local how, kept, counts = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local is_used = redis.call('EXISTS', due, bodies, other) > 0
if is_used or how == 'look' then
  renew_counts(counts, redis.call('EXISTS', due) > 0 and due or other, kept)
  return is_used and 'used' or 'vacant'
end
if not wrong_type({ [notes] = 'string', [ids] = 'zset' }) then
  redis.call('UNLINK', notes, ids)
end
forget_counts(counts, how == 'at_once', kept)
return 'vacant'
