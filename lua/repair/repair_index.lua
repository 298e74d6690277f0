-- Finds index entries that are not sound, and mends them.
-- KEYS keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV mend        FLAG  else it changes nothing
-- ARGV members...  of the index
-- Returns for each entry: 'sound', 'gone' (there is no such entry), 'lost' (the entry has no message) or 'unnamed' (the
-- message cannot be found by its id), see include/*/check_entry.lua
-- Atomic: an entry is removed only while no message belongs to it.
-- Cost: O(log N) an entry
-- @include check_entry lifetime

local left = redis.call('PTTL', keys.due)
local reply = {}
for i, member in ipairs(members) do
  reply[i] = check_entry(keys, member, mend)
end
if mend then
  lengthen_all(keys, left)
end
return reply
