-- Finds index entries that are not sound, and mends them.
-- KEYS[1] due     ZSET    message -> due time, ms since the epoch
-- KEYS[2] backup  HASH    id -> message
-- KEYS[3] order   STRING  count of messages marked so far
-- KEYS[4] twins   ZSET    ids of messages stored beside another of the same id
-- ARGV[1] mend    1, or 0 to change nothing
-- ARGV[2...] one an entry: index member
-- Returns for each entry: 'sound', 'gone' (there is no such entry), 'lost' (no message belongs to it) or what else is
-- wrong with it in this form of backup, see include/check_index_*.lua
-- Atomic: an entry is removed only while no message belongs to it.
-- Cost: O(log N) an entry
-- @include wrong_type
-- @include check_index
-- @include lifetime

local keys = { due = KEYS[1], backup = KEYS[2], order = KEYS[3], twins = KEYS[4] }
local mend = ARGV[1] == '1'

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end
local left = redis.call('PTTL', keys.due)
local reply = {}
for i = 2, #ARGV do
  reply[#reply + 1] = check_entry(keys, ARGV[i], mend)
end
if mend then
  lengthen_all(keys, left)
end
return reply
