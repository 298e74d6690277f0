-- Reads the waiting messages of some ids.
-- KEYS[1] due     ZSET    message -> due time, ms since the epoch
-- KEYS[2] backup  HASH    id -> message
-- KEYS[3] order   STRING  count of messages marked so far
-- KEYS[4] twins   ZSET    ids of messages stored beside another of the same id
-- ARGV[1] count   most twins of an id to return
-- ARGV[2] bytes   about the most bytes to return, beyond which the other ids are left
-- ARGV[3...] one a task: id
-- Returns for each id that was searched, in order: {id under which it is stored, due time, priority, body, and so on
-- for each message read}
-- Atomic: reads only.
-- Cost: O(log N) an id
-- @include wrong_type
-- @include search

local keys = { due = KEYS[1], backup = KEYS[2], order = KEYS[3], twins = KEYS[4] }
local count, bytes = ARGV[1], tonumber(ARGV[2])

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end
return search(keys, { unpack(ARGV, 3) }, count, bytes)
