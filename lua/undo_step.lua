-- Takes a message that was just stored out of the store again.
-- KEYS keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV identity
-- ARGV sha       SHA-1 of its body
-- Returns 'undone', or 'gone' if no message with this id and this body waits
-- Atomic: a message that is undone will not be delivered.
-- Cost: O(log N)
-- @include find

local outcome = 'gone'
for _, message in ipairs(find(keys, identity, 100)) do
  if redis.sha1hex(message.body) == sha then
    remove(keys, message)
    outcome = 'undone'
  end
end
return outcome
