-- Takes the oldest dead letters from the end of their list, and puts them into queues, back, or away.
-- KEYS[1]    dead   LIST  dead letters
-- KEYS[2...] ready  LIST  lists of the queues that they may go to
-- ARGV[...] three a dead letter, oldest first: its message as it is in the list; its goal: the number of one of the
--   lists, counted from 0, 'back' for the other end of the dead letters' list, or 'away'; the message to put there
-- Returns number of dead letters taken; fewer than given when other letters are at the end of the list
-- Atomic: pushes first, removes after; cut short, it may repeat a message and never lose one.
-- Cost: O(1) a dead letter
-- @include wrong_type

local dead = KEYS[1]

local wrong = wrong_stored({}, 1)
if wrong then
  return wrong
end
local taken = 0
for i = 1, #ARGV, 3 do
  local message, where, body = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if redis.call('LINDEX', dead, -1) ~= message then
    break
  end
  if where == 'back' then
    redis.call('LMOVE', dead, dead, 'RIGHT', 'LEFT')
  else
    if where ~= 'away' then
      redis.call('LPUSH', KEYS[2 + tonumber(where)], body)
    end
    redis.call('RPOP', dead)
  end
  taken = taken + 1
end
return taken
