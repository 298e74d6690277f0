-- Moves waiting messages to the end of the queue's lists before they are due.
-- KEYS keys      of the queue's delayed messages, see include/*/types.lua
-- KEYS ready...  LIST  the queue's lists, one a priority step
-- ARGV counts   key of the queue's counters
-- ARGV list_of  PRIORITIES  the queue's lists
-- ARGV rows...  {id, sha, due, body}  one a message: id under which it is stored, SHA-1 of its body; new body
-- Returns for each message: 'transferred', or, with nothing changed, 'not_delayed' or 'changed' (another body or
-- another due time waits under the id)
-- Atomic: pushes first, removes after; cut short, it may repeat a message and never lose one.
-- Cost: O(log N) a message
-- @include as_read clock counters find lifetime push

local life = life_of(keys, now_ms(), 0)

local function run_now(row)
  local message, word = as_read(keys, row)
  if not message then
    return word
  end
  push({ [list_of(message.priority)] = { row.body } }, ready, life.margin)
  remove(keys, message)
  return 'transferred'
end

local reply, moved = {}, 0
for i, row in ipairs(rows) do
  reply[i] = run_now(row)
  moved = moved + (reply[i] == 'transferred' and 1 or 0)
end
count_operation(counts, 'run_now', moved, keys.due, life.left)
return reply
