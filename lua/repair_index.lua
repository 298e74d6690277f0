-- Finds index entries that are not sound, and mends them.
-- KEYS[1-4] keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV[1] mend  1, or 0 to change nothing
-- ARGV[2...] one an entry: index member
-- Returns for each entry: 'sound', 'gone' (there is no such entry), 'lost' (the entry has no message) or 'unnamed' (the
-- message cannot be found by its id), see include/*/check_entry.lua
-- Atomic: an entry is removed only while no message belongs to it.
-- Cost: O(log N) an entry
-- @include check_entry lifetime

local mend = ARGV[1] == '1'

local left = redis.call('PTTL', keys.due)
local reply = {}
for i = 2, #ARGV do
  reply[#reply + 1] = check_entry(keys, ARGV[i], mend)
end
if mend then
  lengthen_all(keys, left)
end
return reply
