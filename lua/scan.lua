-- Reads which messages of a part of a queue wait, in the order of their due times, a page at a time, without bodies.
-- KEYS[1] due     ZSET         message -> due time, ms since the epoch
-- KEYS[2] bodies  HASH|LIST    bodies of the messages
-- KEYS[3] notes   STRING|HASH  count of messages marked, and more
-- KEYS[4] ids     ZSET|HASH    what else finds messages by their ids
-- ARGV[1] from       least due time, ms since the epoch, or -inf
-- ARGV[2] to         due time before which messages are wanted, ms since the epoch, or +inf
-- ARGV[3] last       index member at which the page, or the part, before ended, or ''
-- ARGV[4] last_due   its due time as it was returned, '' where the queue begins
-- ARGV[5] final      index member at which the part ends, or ''
-- ARGV[6] final_due  its due time as it was returned, '' where the queue ends
-- ARGV[7] count      how many messages to return at most
-- ARGV[8] bytes      about how many bytes the bodies of all may have at most
-- Returns {'more' or 'end', {index member, due time of each message}, {length of what is stored, or 0, of each}}
-- Atomic: reads only. A message that waits from the first page to the last is returned once.
-- Cost: O(log N * log N + count)
-- @include page wrong_type zset

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local from, to, last, last_due, final, final_due = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local count, bytes = tonumber(ARGV[7]), tonumber(ARGV[8])

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
if start >= stop then
  return { 'end', {}, {} }
end
local found, lengths = measure(keys, start, math.min(count, stop - start), bytes)
return { start + #lengths < stop and 'more' or 'end', found, lengths }
