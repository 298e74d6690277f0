-- Reads which messages of a queue, or of a part of it, wait, in the order of their due times, a page at a time.
-- KEYS[1] due     ZSET         message -> due time, ms since the epoch
-- KEYS[2] bodies  HASH|LIST    bodies of the messages
-- KEYS[3] notes   STRING|HASH  count of messages marked, and more
-- KEYS[4] ids     ZSET|HASH    what else finds messages by their ids
-- ARGV[1] from         least due time, ms since the epoch, or -inf
-- ARGV[2] to           due time before which messages are wanted, ms since the epoch, or +inf
-- ARGV[3] last         where the page or part before ended: index member, or its cursor; '' where the queue begins
-- ARGV[4] last_due     the due time there, as it was returned, '' where the queue begins
-- ARGV[5] final        where the part ends, in the same way; '' where the queue ends
-- ARGV[6] final_due    the due time there, as it was returned, '' where the queue ends
-- ARGV[7] count        how many messages to return at most
-- ARGV[8] bytes        about how many bytes the bodies of all may have at most
-- ARGV[9] with_bodies  '1' to return bodies, '0' to return their lengths
-- Returns {'more' or 'end', and with bodies {id, due time, priority, body, cursor of each message, in turn}, where
-- priority and body are '' when the body is missing; without bodies {index member, due time of each, in turn}, {length
-- of each stored value, 0 when the body is missing}}
-- Atomic: reads only. A message that waits from the first page to the last is returned once.
-- Cost: O(log N * log N + count)
-- @include page wrong_type zset

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local from, to, last, last_due, final, final_due = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local count, bytes, with_bodies = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9] == '1'

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end
local start, stop = between(keys.due, from, to)
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
  local found, lengths = measure(keys, start, count, bytes)
  return { start + #lengths < stop and 'more' or 'end', found, lengths }
end
local members, dues, priorities, bodies = page(keys, start, count, bytes)
local rows = {}
for i, id in ipairs(stored_as(keys, members, bodies)) do
  for _, part in ipairs({ id, dues[i], priorities[i] or '', bodies[i] or '', cursor_of(members[i]) }) do
    rows[#rows + 1] = part
  end
end
return { start + #members < stop and 'more' or 'end', rows }
