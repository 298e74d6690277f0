-- Reads the waiting messages of some ids.
-- KEYS[1] due     ZSET         message -> due time, ms since the epoch
-- KEYS[2] bodies  HASH|LIST    bodies of the messages
-- KEYS[3] notes   STRING|HASH  count of messages marked, and more
-- KEYS[4] ids     ZSET|HASH    ids of duplicates, or index of messages by id
-- ARGV[1] count  how many duplicates of an id to return at most
-- ARGV[2] bytes  about how many bytes to return at most; further ids are not searched
-- ARGV[3...] one a task: id
-- Returns for each id searched, in order, a list with four items a message found: id under which the message is stored,
-- due time, priority, body
-- Atomic: reads only.
-- Cost: O(log N) an id
-- @include all_from search wrong_type

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local count, bytes = ARGV[1], tonumber(ARGV[2])

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end
return search(keys, all_from(ARGV, 3), count, bytes)
