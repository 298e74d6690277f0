-- Reads the waiting messages of some ids.
-- KEYS[1] due     ZSET  message -> due time, ms since the epoch
-- KEYS[2] backup  HASH  id -> message
-- KEYS[3] twins   ZSET  ids of messages stored beside another of the same id
-- ARGV[1] count   most twins of an id to return
-- ARGV[2...] one a task: id
-- Returns for each id: {id under which it is stored, due time, priority, body, and so on for each of its messages}
-- Atomic: reads only.
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
  reply[i - 1] = told(find(keys, ARGV[i], count))
end
return reply
