-- Gives waiting messages new due times, and bodies with these due times.
-- KEYS keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV wake, queue  channel on which a new head is announced, and the name of the queue there
-- ARGV counts       key of the queue's counters
-- ARGV rows...  {id, sha, due, new_due, body}  one a message: id under which it is stored, SHA-1 of its body; new body
-- Returns for each message: 'rescheduled', or, with nothing changed, 'not_delayed', 'changed' (another body or
-- another due time waits under the id) or 'due' (the new due time is past)
-- Atomic: a message that was not transferred before waits until its new due time.
-- Cost: O(log N) a message
-- @include announce as_read clock counters find lifetime

local now = now_ms()

local function reschedule(row)
  local message, word = as_read(keys, row)
  if not message then
    return word
  end
  if tonumber(row.new_due) <= now then
    return 'due'
  end
  replace(keys, message, row.new_due, row.body)
  return 'rescheduled'
end

-- A key that is empty for a moment loses its TTL, so the script reads the TTLs first.
local life = life_of(keys, now, 0)
local reply, changed = {}, 0
announce(keys, wake, queue, function()
  for i, row in ipairs(rows) do
    reply[i] = reschedule(row)
    changed = changed + (reply[i] == 'rescheduled' and 1 or 0)
  end
end)
live_on(keys, life, now)
count_operation(counts, 'reschedule', changed, keys.due, life.left)
return reply
