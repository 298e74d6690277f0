-- Removes waiting messages that are still as they were read.
-- KEYS keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV counts  key of the queue's counters
-- ARGV rows...  {id, sha, due}  one a message: id under which it is stored, SHA-1 of its body
-- Returns for each message: 'cancelled', or, with nothing changed, 'not_delayed' or 'changed' (another body or another
-- due time waits under the id)
-- Atomic: a message with the word 'cancelled' will not be delivered.
-- Cost: O(log N) a message
-- @include as_read counters find

local function discard(row)
  local message, word = as_read(keys, row)
  if not message then
    return word
  end
  remove(keys, message)
  return 'cancelled'
end

local left = redis.pcall('PTTL', keys.due) -- the last message may leave
local reply, removed = {}, 0
for i, row in ipairs(rows) do
  local word = discard(row)
  reply[i] = word
  removed = removed + (word == 'cancelled' and 1 or 0)
end
count_operation(counts, 'cancel', removed, keys.due, left)
return reply
