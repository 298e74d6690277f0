-- Cuts a queue's waiting messages into parts, and returns where each part ends.
-- KEYS due  ZSET  message -> due time, ms since the epoch
-- ARGV from_ms, to_ms  least due time, ms since the epoch, or -inf; due time before which messages are wanted, or inf
-- ARGV ranks...  one for every part but the last: rank of the part's last message among the messages within the bounds,
-- counted from 0, ascending
-- Returns for each rank: cursor of the member with that rank, its due time; nothing for a rank beyond the last message
-- Atomic: reads only. The parts are disjoint and together have all messages within the bounds.
-- Cost: O(log N) a rank
-- @include page zset

local first, behind = between(due, from_ms, to_ms)
local reply = {}
for _, place in ipairs(ranks) do
  local rank = first + tonumber(place)
  if rank >= behind then
    break
  end
  local found = redis.call('ZRANGE', due, rank, rank, 'WITHSCORES')
  reply[#reply + 1] = cursor_of(found[1])
  reply[#reply + 1] = found[2]
end
return reply
