-- Removes all delayed messages of a queue, and all in its lists.
-- KEYS keys      of the queue's delayed messages, see include/*/types.lua
-- KEYS ready...  LIST  the queue's lists, one a priority step; none if what is there stays
-- ARGV counts  key of the queue's counters
-- Returns number of messages removed
-- Atomic: all or none.
-- Cost: O(1); Redis frees the memory in the background
-- @include counters

local count = redis.call('ZCARD', keys.due)
redis.call('UNLINK', keys.due, keys.bodies, keys.notes, keys.ids)
count_up(counts, { purge = count })
for _, list in ipairs(ready) do
  count = count + redis.call('LLEN', list)
  redis.call('UNLINK', list)
end
return count
