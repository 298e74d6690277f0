-- Puts off when a queue expires, which is in use.
-- KEYS[1] due     ZSET    message -> due time, ms since the epoch
-- KEYS[2] backup  HASH    id -> message
-- KEYS[3] order   STRING  count of messages marked so far
-- KEYS[4] twins   ZSET    ids of messages stored beside another of the same id
-- ARGV[1] expire  ms after which an unused queue expires
-- Returns 'kept', or 'empty' when there is no such queue
-- Atomic: no key ends sooner than it would have, or before the latest message is due and `expire` more.
-- Cost: O(log N)
-- @include clock
-- @include wrong_type
-- @include lifetime

local keys = { due = KEYS[1], backup = KEYS[2], order = KEYS[3], twins = KEYS[4] }
local expire = tonumber(ARGV[1])
local now = now_ms()

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end
local life = life_of(keys, now, expire)
if life.left == -2 then
  return 'empty'
end
live_on(keys, life, now)
return 'kept'
