-- Takes the oldest dead letters from the end of their list, and puts them into queues, back, or away.
-- KEYS[1]    dead   LIST  dead letters
-- KEYS[2...] ready  LIST  lists of the queues that they may go to
-- ARGV[1] counts  key of the counters of the queue of dead letters
-- ARGV[2] kept    for how many ms new counters are kept, 0 for good
-- ARGV[3...] three a dead letter, oldest first: its message as it is in the list; its goal: the number of one of the
--   lists, counted from 0, 'back' for the other end of the dead letters' list, 'away', or 'sent' where the caller has
--   sent it already, because its list is in another slot; the message to put there
-- Returns number of dead letters taken; fewer than given when other letters are at the end of the list
-- Atomic: pushes first, removes after; cut short, it may repeat a message and never lose one.
-- Cost: O(1) a dead letter
-- @include tally wrong_type

local dead = KEYS[1]
local counts, kept = ARGV[1], tonumber(ARGV[2])

local wrong = wrong_stored({}, 1)
if wrong then
  return wrong
end
local taken, by = 0, { replay = 0, drop = 0 }
for i = 3, #ARGV, 3 do
  local message, where, body = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if redis.call('LINDEX', dead, -1) ~= message then
    break
  end
  if where == 'back' then
    redis.call('LMOVE', dead, dead, 'RIGHT', 'LEFT')
  else
    if where ~= 'away' and where ~= 'sent' then
      redis.call('LPUSH', KEYS[2 + tonumber(where)], body)
    end
    redis.call('RPOP', dead)
    local done = where == 'away' and 'drop' or 'replay'
    by[done] = by[done] + 1
  end
  taken = taken + 1
end
if by.replay + by.drop > 0 then
  tally_for(counts, by, kept)
end
return taken
