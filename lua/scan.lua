-- Reads the waiting messages of a queue, or of a part of it, in the order of their due times, a page at a time.
-- KEYS keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV from_ms, to_ms    least due time, ms since the epoch, or -inf; due time before which messages are wanted, or inf
-- ARGV last, last_due    end of the page or part before: an index member, or its cursor, and its due time, as returned;
-- '' at the queue's beginning
-- ARGV final, final_due  end of the part, likewise; '' for the queue's end
-- ARGV count, max_bytes  NUMBER  how many messages, and about how many bytes of all bodies together, to return at most
-- ARGV with_bodies       FLAG    to return bodies; else their lengths
-- Returns {'more' or 'end', messages, lengths}. With bodies, messages has five items a message: id, due time, priority,
-- body, cursor; priority and body are '' when the body is missing; there are no lengths. Without bodies, messages has
-- two items a message: index member, due time; lengths has the length of its stored value, 0 when the body is missing
-- Atomic: reads only. A message that waits from the first page to the last is returned once.
-- Cost: O(log N * log N + count)
-- @include page zset

local start, stop = between(keys.due, from_ms, to_ms)
if last_due ~= '' then -- not last: a member may be empty
  start = math.max(start, rank_after(keys.due, last, last_due))
end
if final_due ~= '' then
  stop = math.min(stop, rank_after(keys.due, final, final_due))
end
count = math.min(count, stop - start)
if count <= 0 then
  return { 'end', {}, {} }
end
if not with_bodies then
  local found, lengths = measure(keys, start, count, max_bytes)
  return { start + #lengths < stop and 'more' or 'end', found, lengths }
end
local members, dues, priorities, bodies = page(keys, start, count, max_bytes)
local rows = {}
for i, id in ipairs(stored_as(keys, members, bodies)) do
  for _, part in ipairs({ id, dues[i], priorities[i] or '', bodies[i] or '', cursor_of(members[i]) }) do
    rows[#rows + 1] = part
  end
end
return { start + #members < stop and 'more' or 'end', rows }
