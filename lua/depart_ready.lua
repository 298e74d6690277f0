-- Takes the next messages of a queue's list out of the queue, on their way to a queue in another slot.
-- KEYS[1] from    LIST  messages that are ready for a consumer
-- KEYS[2] moving  LIST  messages on their way: name of the move, the other queue, then four a message
-- ARGV[1] name    of this move, which no other move has
-- ARGV[2] queue   name of the queue to which they go
-- ARGV[3] at      which of the queue's lists this is, from 0
-- ARGV[4...] two a message, the next one first: SHA-1 of it; the message to put into the other list
-- Returns -1 if messages of another move are still on their way; else the number of messages that are on their way now;
-- fewer than given when other messages are next by now
-- Atomic: notes first, removes after; cut short, it may repeat a message and never lose one.
-- Cost: O(1) a message
-- @include wrong_type

local from, moving = KEYS[1], KEYS[2]
local name, queue, at = ARGV[1], ARGV[2], ARGV[3]

local wrong = wrong_type({ [from] = 'list', [moving] = 'list' })
if wrong then
  return wrong
elseif redis.call('EXISTS', moving) == 1 then
  return -1
end
local moved = 0
for i = 4, #ARGV, 2 do
  local message = redis.call('LINDEX', from, -1)
  if not message or redis.sha1hex(message) ~= ARGV[i] then
    break
  end
  if moved == 0 then
    redis.call('RPUSH', moving, name, queue)
  end
  redis.call('RPUSH', moving, '', '', at, ARGV[i + 1])
  redis.call('RPOP', from)
  moved = moved + 1
end
return moved
