-- Gives waiting messages new due times, and bodies with these due times.
-- KEYS[1-4] keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV[1] wake   channel on which a new head is announced
-- ARGV[2] queue  name, as announced
-- ARGV[3] counts  key of the queue's counters
-- ARGV[4...] five a message: id under which it is stored, SHA-1 of its body, due time, new due time, new body
-- Returns for each message: 'rescheduled', or, with nothing changed, 'not_delayed', 'changed' (another body or
-- another due time waits under the id) or 'due' (the new due time is past)
-- Atomic: a message that was not transferred before waits until its new due time.
-- Cost: O(log N) a message
-- @include announce as_read clock counters find lifetime

local wake, queue, counts = ARGV[1], ARGV[2], ARGV[3]
local now = now_ms()

local function reschedule(id, sha, was_ms, due_ms, body)
  local message, word = as_read(keys, id, sha, was_ms)
  if not message then
    return word
  end
  if tonumber(due_ms) <= now then
    return 'due'
  end
  replace(keys, message, due_ms, body)
  return 'rescheduled'
end

-- A key that is empty for a moment loses its TTL, so the script reads the TTLs first.
local life = life_of(keys, now, 0)
local reply, changed = {}, 0
announce(keys, wake, queue, function()
  for i = 4, #ARGV, 5 do
    reply[#reply + 1] = reschedule(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4])
    changed = changed + (reply[#reply] == 'rescheduled' and 1 or 0)
  end
end)
live_on(keys, life, now)
count_operation(counts, 'reschedule', changed, keys.due, life.left)
return reply
