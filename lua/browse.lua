-- Reads waiting messages in the order of their due times, a page at a time.
-- KEYS[1] due     ZSET  message -> due time, ms since the epoch
-- KEYS[2] backup  HASH  id -> message
-- ARGV[1] from    least due time, ms since the epoch, or -inf
-- ARGV[2] to      due time before which messages are wanted, ms since the epoch, or +inf
-- ARGV[3] last    index member at which the page before ended, or ''
-- ARGV[4] last_due  its due time as it was returned, '' for the first page
-- ARGV[5] count   most messages to return
-- ARGV[6] bytes   about the most bytes to return
-- Returns {'more' or 'end', then four a message: index member, due time, priority, body}; priority and body are
-- '' where the body is missing
-- Atomic: reads only. A message that waits from the first page to the last is returned once.
-- Cost: O(log N * log N + count)
-- @include wrong_type
-- @include backup
-- @include after
-- @include between

local keys = { due = KEYS[1], backup = KEYS[2] }
local from, to, last, last_due = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local count, bytes = tonumber(ARGV[5]), tonumber(ARGV[6])

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end
local start, stop = between(keys.due, from, to)
if last_due ~= '' then -- a member may be empty
  start = rank_after(keys.due, last, last_due)
end
if start >= stop then
  return { 'end' }
end
local found = redis.call('ZRANGE', keys.due, start, math.min(start + count, stop) - 1, 'WITHSCORES')
local members, dues, priorities, bodies = read(keys, found, bytes)
local reply = { start + #members < stop and 'more' or 'end' }
for i, member in ipairs(members) do
  for _, part in ipairs({ member, dues[i], priorities[i] or '', bodies[i] or '' }) do
    reply[#reply + 1] = part
  end
end
return reply
