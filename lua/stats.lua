-- Counts a queue's messages.
-- KEYS[1]    due    ZSET  message -> due time, ms since the epoch
-- KEYS[2]    other  ZSET  `due` of the other layout; `due` again where that is not counted
-- KEYS[3...] ready  LIST  the queue's lists, one a priority step
-- Returns {now, number delayed, number ready, number overdue, next due or ''}
-- Atomic: all numbers are of one moment.
-- Cost: O(log N)
-- @include clock wrong_type

local due, other = KEYS[1], KEYS[2]
local now = now_ms()

local wrong = wrong_stored({ due = due }, 3) or wrong_stored({ due = other })
if wrong then
  return wrong
end
local ready = 0
for i = 3, #KEYS do
  ready = ready + redis.call('LLEN', KEYS[i])
end
local delayed, overdue, head = 0, 0, ''
for _, index in ipairs(due == other and { due } or { due, other }) do
  delayed = delayed + redis.call('ZCARD', index)
  overdue = overdue + redis.call('ZCOUNT', index, '-inf', now)
  local first = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')[2]
  if first and (head == '' or tonumber(first) < tonumber(head)) then
    head = first
  end
end
return { string.format('%.17g', now), delayed, ready, overdue, head }
