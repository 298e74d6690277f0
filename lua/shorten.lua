-- Removes messages from the end of a list, as far as they are there still.
-- KEYS[1] ready  LIST  one of a queue's lists
-- ARGV[...] messages, the one at the end first
-- Returns number of messages removed; fewer than given when other messages are at the end
-- Atomic: removes no other message.
-- Cost: O(1) a message
-- @include wrong_type

local ready = KEYS[1]

local wrong = wrong_stored({}, 1)
if wrong then
  return wrong
end
local removed = 0
for _, message in ipairs(ARGV) do
  if redis.call('LINDEX', ready, -1) ~= message then
    break
  end
  redis.call('RPOP', ready)
  removed = removed + 1
end
return removed
