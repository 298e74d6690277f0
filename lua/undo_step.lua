-- Takes the steps of a delay chain out of the store that were stored while it was cancelled.
-- KEYS keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV chain     text that the body of every step of the chain contains, and no other body
-- ARGV identity
-- Returns 'undone', or 'gone' if no step of the chain waits
-- Atomic: a message that is undone will not be delivered.
-- Cost: O(log N)
-- @include find

local outcome = 'gone'
for _, message in ipairs(find(keys, identity, 100)) do
  if string.find(message.body, chain, 1, true) then
    remove(keys, message)
    outcome = 'undone'
  end
end
return outcome
