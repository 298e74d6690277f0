-- Counts a queue's messages.
-- KEYS[1]    due    ZSET  message -> due time, ms since the epoch
-- KEYS[2...] ready  LIST  the queue's lists, one a priority step
-- Returns {now, number delayed, number ready, number overdue, next due or '', ...}, and then for each list that is not
-- empty two texts of the message that is consumed next: its property `timestamp` or '', its eta or ''
-- Atomic: all numbers are of one moment.
-- Cost: O(log N + bytes of these messages)
-- @include clock since wrong_type

local due = KEYS[1]
local now = now_ms()

local wrong = wrong_stored({ due = due }, 2)
if wrong then
  return wrong
end
local ready, since = 0, {}
for i = 2, #KEYS do
  local length = redis.call('LLEN', KEYS[i])
  if length > 0 then
    ready = ready + length
    add_since(since, redis.pcall('LINDEX', KEYS[i], -1))
  end
end
local delayed, overdue = redis.call('ZCARD', due), redis.call('ZCOUNT', due, '-inf', now)
local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or ''
return { string.format('%.17g', now), delayed, ready, overdue, head, unpack(since) }
