-- Removes waiting messages that are still as they were read.
-- KEYS[1-4] keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV[1] counts  key of the queue's counters
-- ARGV[2...] three a message: id under which it is stored, SHA-1 of its body, due time
-- Returns for each message: 'cancelled', or, with nothing changed, 'not_delayed' or 'changed' (another body or another
-- due time waits under the id)
-- Atomic: a message with the word 'cancelled' will not be delivered.
-- Cost: O(log N) a message
-- @include as_read counters find

local counts = ARGV[1]

local function discard(id, sha, due_ms)
  local message, word = as_read(keys, id, sha, due_ms)
  if not message then
    return word
  end
  remove(keys, message)
  return 'cancelled'
end

local left = redis.pcall('PTTL', keys.due) -- the last message may leave
local reply, removed = {}, 0
for i = 2, #ARGV, 3 do
  local word = discard(ARGV[i], ARGV[i + 1], ARGV[i + 2])
  reply[#reply + 1] = word
  removed = removed + (word == 'cancelled' and 1 or 0)
end
count_operation(counts, 'cancel', removed, keys.due, left)
return reply
