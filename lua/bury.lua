-- Moves waiting messages that are too late to a queue of dead letters.
-- KEYS[1]    due      ZSET         message -> due time, ms since the epoch
-- KEYS[2]    bodies   HASH|LIST    bodies of the messages
-- KEYS[3]    notes    STRING|HASH  count of messages marked, and more
-- KEYS[4]    ids      ZSET|HASH    ids of twins, or index of messages by id
-- KEYS[5...] letters  LIST         the lists of the queue of dead letters, one a priority step; none where they are in
-- another slot, and the caller has pushed the dead letters already
-- ARGV[1] counts  key of the counters of the messages' queue
-- ARGV[2...] five a message, as `transfer_limited` returned it: key; due time; SHA-1 of the body; number of the list of
-- dead letters, from 0; the message as a dead letter, '' if it has no body and only leaves
-- Returns {number buried, number without a body, {positions of the messages that are not touched, because they left or
-- have changed, from 0}}
-- Atomic: pushes first, removes after; cut short, it may repeat a message and never lose one.
-- Cost: O(log N) a message
-- @include clock pick tally wrong_type

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local counts, now = ARGV[1], now_ms()

local wrong = wrong_stored(keys, 5)
if wrong then
  return wrong
end
local buried, lost, untouched = 0, 0, {}
for i = 2, #ARGV, 5 do
  local key, due_ms, sha, list, letter = unpack(ARGV, i, i + 4)
  local member = due_member(keys, key, due_ms, now)
  local bodies = member and read_picked(keys, { member })
  if bodies and bodies[1] and redis.sha1hex(bodies[1]) == sha then
    if #KEYS > 4 then
      redis.call('LPUSH', KEYS[5 + tonumber(list)], letter)
    end
    pull(keys, { member }, bodies)
    buried = buried + 1
  elseif bodies and not bodies[1] and letter == '' then
    pull(keys, { member }, bodies)
    lost = lost + 1
  else
    untouched[#untouched + 1] = (i - 2) / 5
  end
end
tally(counts, { overdue_dead_lettered = buried, lost = lost })
return { buried, lost, untouched }
