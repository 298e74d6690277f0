-- Takes the oldest dead letters from the end of their list, and puts them back, or away.
-- KEYS[1] dead  LIST  dead letters
-- ARGV[1] counts  key of the counters of the queue of dead letters
-- ARGV[2...] two a dead letter, oldest first: its message as it is in the list; its goal: 'back' for the other end of
--   the dead letters' list, 'away', or 'sent' where the caller has sent it to its queue already
-- Returns number of dead letters taken; fewer than given when other letters are at the end of the list
-- Atomic: takes no other letter.
-- Cost: O(1) a dead letter
-- @include counters

local counts = ARGV[1]

local taken, by = 0, { replay = 0, drop = 0 }
for i = 2, #ARGV, 2 do
  local message, where = ARGV[i], ARGV[i + 1]
  if redis.call('LINDEX', dead, -1) ~= message then
    break
  end
  if where == 'back' then
    redis.call('LMOVE', dead, dead, 'RIGHT', 'LEFT')
  else
    redis.call('RPOP', dead)
    local done = where == 'away' and 'drop' or 'replay'
    by[done] = by[done] + 1
  end
  taken = taken + 1
end
if by.replay + by.drop > 0 then
  count_for_a_while(counts, by)
end
return taken
