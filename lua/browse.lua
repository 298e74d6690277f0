-- Reads waiting messages in the order of their due times, a page at a time.
-- KEYS[1] due     ZSET         message -> due time, ms since the epoch
-- KEYS[2] bodies  HASH|LIST    bodies of the messages
-- KEYS[3] notes   STRING|HASH  count of messages marked, and more
-- KEYS[4] ids     ZSET|HASH    what else finds messages by their ids
-- ARGV[1] from      least due time, ms since the epoch, or -inf
-- ARGV[2] to        due time before which messages are wanted, ms since the epoch, or +inf
-- ARGV[3] last      where the page before ended, as it was returned, or ''
-- ARGV[4] last_due  the due time there, as it was returned, '' for the first page
-- ARGV[5] count     most messages to return
-- ARGV[6] bytes     about the most bytes to return
-- Returns {'more' or 'end', then five a message: id, due time, priority, body, where a page ends whose last one it is};
-- priority and body are '' where the body is missing
-- Atomic: reads only. A message that waits from the first page to the last is returned once.
-- Cost: O(log N * log N + count)
-- @include page wrong_type zset

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local from, to, last, last_due = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local count, bytes = tonumber(ARGV[5]), tonumber(ARGV[6])

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end
local start, stop = between(keys.due, from, to)
if last_due ~= '' then -- not last: a member may be empty
  start = math.max(start, rank_after(keys.due, last, last_due))
end
if start >= stop then
  return { 'end' }
end
local members, dues, priorities, bodies = page(keys, start, math.min(count, stop - start), bytes)
local ids = stored_as(keys, members, bodies)
local reply = { start + #members < stop and 'more' or 'end' }
for i = 1, #members do
  for _, part in ipairs({ ids[i], dues[i], priorities[i] or '', bodies[i] or '', cursor_of(members[i]) }) do
    reply[#reply + 1] = part
  end
end
return reply
