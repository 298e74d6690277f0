-- Reads the waiting messages of some ids.
-- KEYS[1-4] keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV[1] count  how many duplicates of an id to return at most
-- ARGV[2] bytes  about how many bytes to return at most; further ids are not searched
-- ARGV[3...] one a task: id
-- Returns for each id searched, in order, a list with four items a message found: id under which the message is stored,
-- due time, priority, body
-- Atomic: reads only.
-- Cost: O(log N) an id
-- @include all_from search

local count, bytes = ARGV[1], tonumber(ARGV[2])

return search(keys, all_from(ARGV, 3), count, bytes)
