-- Reads which messages of a part of a queue wait, in the order of their due times, a page at a time, without bodies.
-- KEYS[1] due     ZSET    message -> due time, ms since the epoch
-- KEYS[2] backup  HASH    id -> message
-- KEYS[3] order   STRING  count of messages marked so far
-- KEYS[4] twins   ZSET    ids of messages stored beside another of the same id
-- ARGV[1] from    least due time, ms since the epoch, or -inf
-- ARGV[2] to      due time before which messages are wanted, ms since the epoch, or +inf
-- ARGV[3] last    index member at which the page, or the part, before ended, or ''
-- ARGV[4] last_due  its due time as it was returned, '' where the queue begins
-- ARGV[5] final   index member at which the part ends, or ''
-- ARGV[6] final_due  its due time as it was returned, '' where the queue ends
-- ARGV[7] count   most messages to return
-- ARGV[8] bytes   about the most bytes that the bodies of all may have
-- Returns {'more' or 'end', {index member, due time of each message}, {length of what is stored, or 0, of each}}
-- Atomic: reads only. A message that waits from the first page to the last is returned once.
-- Cost: O(log N * log N + count)
-- @include wrong_type
-- @include page
-- @include after
-- @include between

local keys = { due = KEYS[1], backup = KEYS[2], order = KEYS[3], twins = KEYS[4] }
local from, to, last, last_due, final, final_due = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local count, bytes = tonumber(ARGV[7]), tonumber(ARGV[8])

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end
local start, stop = between(keys.due, from, to)
if last_due ~= '' then -- a member may be empty
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
