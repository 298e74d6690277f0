-- Takes a message that was just stored out of the store again.
-- KEYS[1] due     ZSET         message -> due time, ms since the epoch
-- KEYS[2] bodies  HASH|LIST    bodies of the messages
-- KEYS[3] notes   STRING|HASH  count of messages marked, and more
-- KEYS[4] ids     ZSET|HASH    ids of duplicates, or index of messages by id
-- ARGV[1] id
-- ARGV[2] sha  SHA-1 of its body
-- Returns 'undone', or 'gone' if no message with this id and this body waits
-- Atomic: a message that is undone will not be delivered.
-- Cost: O(log N)
-- @include find wrong_type

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local id, sha = ARGV[1], ARGV[2]

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end
local outcome = 'gone'
for _, message in ipairs(find(keys, id, 100)) do
  if redis.sha1hex(message.body) == sha then
    remove(keys, message)
    outcome = 'undone'
  end
end
return outcome
