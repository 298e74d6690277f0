-- Moves the next messages of a queue's list to the list of another queue.
-- KEYS[1] from  LIST  messages that are ready for a consumer
-- KEYS[2] to    LIST  the list of the same priority step of the other queue
-- ARGV[1...] two a message, the next one first: SHA-1 of it; the message to put into the other list
-- Returns number of messages moved; fewer than given when other messages are next by now
-- Atomic: pushes first, removes after; cut short, it may repeat a message and never lose one.
-- Cost: O(1) a message
-- @include wrong_type

local from, to = KEYS[1], KEYS[2]

local wrong = wrong_type({ [from] = 'list', [to] = 'list' })
if wrong then
  return wrong
end
local moved = 0
for i = 1, #ARGV, 2 do
  local message = redis.call('LINDEX', from, -1)
  if not message or redis.sha1hex(message) ~= ARGV[i] then
    break
  end
  redis.call('LPUSH', to, ARGV[i + 1])
  redis.call('RPOP', from)
  moved = moved + 1
end
return moved
