-- Moves messages that are due to the end of the queue's lists where kombu would have put them.
-- KEYS[1] due     ZSET    message -> due time, ms since the epoch
-- KEYS[2] backup  HASH    id -> message
-- KEYS[3] order   STRING  count of messages marked so far
-- KEYS[4] twins   ZSET    ids of messages stored beside another of the same id
-- KEYS[5...] ready  LIST  the queue's lists, one a priority step
-- ARGV[1] count   most messages to move
-- ARGV[2] bytes   about the most bytes to move
-- ARGV[3...12] for priority 0-9: which of the lists it goes to, counted from 0
-- Returns {number moved, number without a body, now, next due or '', due times of the moved, blank-separated}
-- Atomic: pushes first, removes after; cut short, it may repeat a message and never lose one.
-- Cost: O(log N) a message
-- @include clock
-- @include wrong_type
-- @include take
-- @include push

local keys = { due = KEYS[1], backup = KEYS[2], order = KEYS[3], twins = KEYS[4] }
local count, bytes = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = now_ms()

local wrong = wrong_stored(keys, 5)
if wrong then
  return wrong
end
local members, dues, priorities, bodies = take(keys, now, count, bytes)
local ready, moved, lost = {}, {}, 0
for i, body in ipairs(bodies) do
  if body then
    local list = KEYS[5 + tonumber(ARGV[3 + tonumber(priorities[i])])]
    ready[list] = ready[list] or {}
    table.insert(ready[list], body)
    table.insert(moved, dues[i])
  else
    lost = lost + 1
  end
end
push(ready, 5, redis.call('PTTL', keys.due))
if #members > 0 then
  drop(keys, members, bodies)
end
local head = redis.call('ZRANGE', keys.due, 0, 0, 'WITHSCORES')
return { #moved, lost, string.format('%.17g', now), head[2] or '', table.concat(moved, ' ') }
