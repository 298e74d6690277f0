-- Reads which messages of a part of a queue wait, in the order of their due times, a page at a time, without bodies.
-- KEYS[1] due     ZSET  message -> due time, ms since the epoch
-- KEYS[2] backup  HASH  id -> message
-- ARGV[1] from    least due time, ms since the epoch, or -inf
-- ARGV[2] to      due time before which messages are wanted, ms since the epoch, or +inf
-- ARGV[3] last    index member at which the page, or the part, before ended, or ''
-- ARGV[4] last_due  its due time as it was returned, '' where the queue begins
-- ARGV[5] final   index member at which the part ends, or ''
-- ARGV[6] final_due  its due time as it was returned, '' where the queue ends
-- ARGV[7] count   most messages to return
-- ARGV[8] bytes   about the most bytes that the bodies of all may have
-- Returns {'more' or 'end', then three a message: index member, due time, length of what is stored or 0}
-- Atomic: reads only. A message that waits from the first page to the last is returned once.
-- Cost: O(log N * log N + count)
-- @include wrong_type
-- @include backup
-- @include after
-- @include between

local keys = { due = KEYS[1], backup = KEYS[2] }
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
  return { 'end' }
end
local found = redis.call('ZRANGE', keys.due, start, math.min(start + count, stop) - 1, 'WITHSCORES')
local reply, size, told = { 'end' }, 0, 0
while told < #found / 2 and size < bytes do
  local member = found[2 * told + 1]
  local length = stored_length(keys, member)
  size, told = size + length, told + 1
  reply[3 * told - 1], reply[3 * told], reply[3 * told + 1] = member, found[2 * told], length
end
if start + told < stop then
  reply[1] = 'more'
end
return reply
