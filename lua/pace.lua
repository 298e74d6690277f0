-- Lets a bulk job send messages, if its rate allows that now, and notes them as sent.
-- KEYS[1] job  HASH  state of the job
-- ARGV[1] rate   messages a second that the job may send
-- ARGV[2] count  how many; less than 0: so many were let through before and not sent
-- Returns '0'; or, with nothing changed, how long to wait, ms
-- Atomic: no two callers are let through in place of one.
-- Cost: O(1)
-- @include clock rate wrong_type

local job, rate, count = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local now = now_ms()

local wrong = wrong_type({ [job] = 'hash' })
if wrong then
  return wrong
end
if redis.call('EXISTS', job) == 0 then
  return '0'
end
local wait = wait_of(job, rate, now)
if count > 0 and wait > 0 then
  return string.format('%.17g', wait)
end
sent(job, rate, count, now)
return '0'
