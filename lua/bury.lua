-- Removes waiting messages that are too late; the caller has pushed them to a queue of dead letters.
-- KEYS keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV counts  key of the counters of the messages' queue
-- ARGV rows...  {key, due, sha, letter}  one a message, the first two as `transfer_limited` returned them; SHA-1 of its
-- body; the message as a dead letter, '' if it has no body and only leaves
-- Returns {number buried, number without a body, {positions of the messages that are not touched, because they left or
-- have changed, from 0}}
-- Atomic: removes no message that has changed.
-- Cost: O(log N) a message
-- @include clock counters pick

local now = now_ms()

local buried, lost, untouched = 0, 0, {}
for i, row in ipairs(rows) do
  local member = due_member(keys, row.key, row.due, now)
  local bodies = member and read_picked(keys, { member })
  if bodies and bodies[1] and redis.sha1hex(bodies[1]) == row.sha then
    pull(keys, { member }, bodies)
    buried = buried + 1
  elseif bodies and not bodies[1] and row.letter == '' then
    pull(keys, { member }, bodies)
    lost = lost + 1
  else
    untouched[#untouched + 1] = i - 1
  end
end
count_up(counts, { overdue_dead_lettered = buried, lost = lost })
return { buried, lost, untouched }
