-- Reads the waiting messages of some ids.
-- KEYS keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV count, max_bytes  NUMBER  how many duplicates of an id, and about how many bytes, to return at most; further ids
-- are not searched
-- ARGV ids...            of the tasks
-- Returns for each id searched, in order, a list with four items a message found: id under which the message is stored,
-- due time, priority, body
-- Atomic: reads only.
-- Cost: O(log N) an id
-- @include search

return search(keys, ids, count, max_bytes)
