-- Removes the waiting messages of some ids.
-- KEYS keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV count, max_bytes  NUMBER  how many duplicates of an id, and about how many bytes, to remove at most; further ids
-- are not searched
-- ARGV counts            key of the queue's counters
-- ARGV ids...            of the tasks
-- Returns for each id searched, in order, a list with four items a removed message: id under which the message was
-- stored, due time, priority, body
-- Atomic: a message that is returned will not be delivered; one that is not returned did not wait.
-- Cost: O(log N) an id
-- @include counters find search


local left = redis.pcall('PTTL', keys.due) -- the last message may leave
local reply, removed = search(keys, ids, count, max_bytes, remove), 0
for _, found in ipairs(reply) do
  removed = removed + #found / 4
end
count_operation(counts, 'cancel', removed, keys.due, left)
return reply
