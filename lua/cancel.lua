-- Removes the waiting messages of some ids.
-- KEYS[1] due     ZSET  message -> due time, ms since the epoch
-- KEYS[2] backup  HASH  id -> message
-- KEYS[3] twins   ZSET  ids of messages stored beside another of the same id
-- ARGV[1] count   most twins of an id to remove
-- ARGV[2...] one a task: id
-- Returns for each id: {id under which it was stored, due time, priority, body, and so on for each removed}
-- Atomic: what is returned will not be delivered; what is not was not waiting.
-- Cost: O(log N) an id
-- @include wrong_type
-- @include find

local keys = { due = KEYS[1], backup = KEYS[2], twins = KEYS[3] }
local count = ARGV[1]

local wrong = wrong_type({ [keys.due] = 'zset', [keys.backup] = 'hash', [keys.twins] = 'zset' })
if wrong then
  return wrong
end
local reply = {}
for i = 2, #ARGV do
  local found = find(keys, ARGV[i], count)
  for _, message in ipairs(found) do
    remove(keys, message)
  end
  reply[i - 1] = told(found)
end
return reply
