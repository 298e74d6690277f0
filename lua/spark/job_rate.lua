-- Lets a bulk job send messages, if its rate allows that now, and notes them as sent.
-- KEYS job  HASH  state of the job
-- ARGV rate   NUMBER  messages a second that the job may send
-- ARGV count  NUMBER  how many; less than 0: so many were let through before and not sent
-- Returns '0'; or, with nothing changed, how long to wait, ms
-- Atomic: no two callers are let through in place of one.
-- Cost: O(1)
-- @include clock

local now = now_ms()
local CATCH_UP_MS = 100 -- after a pause a job may catch up with so many ms of its rate

if not redis.call('HGET', job, 'state') then
  return '0'
end
local next_ms = tonumber(redis.call('HGET', job, 'next') or 0)
if count > 0 and next_ms > now then
  return string.format('%.17g', next_ms - now)
end
redis.call('HSET', job, 'next', string.format('%.17g', math.max(next_ms, now - CATCH_UP_MS) + count * 1000 / rate))
return '0'
