-- Moves waiting messages to the end of the queue's lists before they are due.
-- KEYS[1-4] keys  of the queue's delayed messages, see include/*/types.lua
-- KEYS[5...] ready   LIST         the queue's lists, one a priority step
-- ARGV[1] counts  key of the queue's counters
-- ARGV[2...] first ten numbers: for each priority 0-9 its list, counted from 0; from the 12th on four a message:
-- id under which it is stored, SHA-1 of its body, due time, new body
-- Returns for each message: 'transferred', or, with nothing changed, 'not_delayed' or 'changed' (another body or
-- another due time waits under the id)
-- Atomic: pushes first, removes after; cut short, it may repeat a message and never lose one.
-- Cost: O(log N) a message
-- @include as_read clock counters find lifetime push

local counts = ARGV[1]

local life = life_of(keys, now_ms(), 0)

local function run_now(id, sha, was_ms, body)
  local message, word = as_read(keys, id, sha, was_ms)
  if not message then
    return word
  end
  local ready = KEYS[5 + ARGV[2 + message.priority]]
  push({ [ready] = { body } }, 5, life.margin)
  remove(keys, message)
  return 'transferred'
end

local reply, moved = {}, 0
for i = 12, #ARGV, 4 do
  reply[#reply + 1] = run_now(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
  moved = moved + (reply[#reply] == 'transferred' and 1 or 0)
end
count_operation(counts, 'run_now', moved, keys.due, life.left)
return reply
