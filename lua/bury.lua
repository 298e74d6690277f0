-- Removes waiting messages that are too late; the caller has pushed them to a queue of dead letters.
-- KEYS[1-4] keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV[1] counts  key of the counters of the messages' queue
-- ARGV[2...] four a message, as `transfer_limited` returned it: key; due time; SHA-1 of the body; the message as a dead
-- letter, '' if it has no body and only leaves
-- Returns {number buried, number without a body, {positions of the messages that are not touched, because they left or
-- have changed, from 0}}
-- Atomic: removes no message that has changed.
-- Cost: O(log N) a message
-- @include clock counters pick

local counts, now = ARGV[1], now_ms()

local buried, lost, untouched = 0, 0, {}
for i = 2, #ARGV, 4 do
  local key, due_ms, sha, letter = unpack(ARGV, i, i + 3)
  local member = due_member(keys, key, due_ms, now)
  local bodies = member and read_picked(keys, { member })
  if bodies and bodies[1] and redis.sha1hex(bodies[1]) == sha then
    pull(keys, { member }, bodies)
    buried = buried + 1
  elseif bodies and not bodies[1] and letter == '' then
    pull(keys, { member }, bodies)
    lost = lost + 1
  else
    untouched[#untouched + 1] = (i - 2) / 4
  end
end
count_up(counts, { overdue_dead_lettered = buried, lost = lost })
return { buried, lost, untouched }
