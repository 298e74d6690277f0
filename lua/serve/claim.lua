-- Claims the work that a request with an idempotency key asks for, or returns the answer that was kept for the key.
-- KEYS answer  HASH  what was asked for, when, by whom it is worked on, and the answer; with a TTL
-- ARGV name    of the caller, which nobody else has
-- ARGV digest  of the request
-- ARGV hold    NUMBER  how long the caller may work before another may claim, ms
-- ARGV ttl     how long the key is kept, ms
-- Returns {word, when the key was first claimed, ms since the epoch, answer or ''}; word is 'first' (nobody claimed it
-- before), 'again' (the caller that claimed it has gone without an answer), 'kept' (here is the answer); or, with
-- nothing changed, 'running' (another works on it) or 'other' (the key came with another request)
-- Atomic: at any moment one caller works on a key.
-- Cost: O(1)
-- @include clock

local now = now_ms()

local of, since, by, till, kept = unpack(redis.call('HMGET', answer, 'digest', 'since', 'by', 'till', 'answer'))
if of and of ~= digest then
  return { 'other', since, '' }
end
if kept then
  return { 'kept', since, kept }
end
if of and by ~= name and tonumber(till or 0) > now then
  return { 'running', since, '' }
end
local word = of and by ~= name and 'again' or 'first'
since = since or string.format('%.17g', now)
redis.call('HSET', answer, 'digest', digest, 'since', since, 'by', name, 'till', string.format('%.17g', now + hold))
redis.call('PEXPIRE', answer, ttl)
return { word, since, '' }
