-- Notes that a queue is in use, so that neither its messages nor its counters expire.
-- KEYS keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV expire  NUMBER  ms after which an unused queue expires, 0 for never
-- ARGV counts  key of the queue's counters
-- Returns 'kept', or 'empty' when the queue has no `due` key
-- Atomic: no key ends sooner than before, nor sooner than `expire` ms after the latest message is due.
-- Cost: O(log N)
-- @include clock counters lifetime

local now = now_ms()

local life = life_of(keys, now, expire)
if life.left == -2 then
  local ends = redis.pcall('PTTL', counts)
  if expire > 0 or type(ends) == 'number' and ends > 0 then
    keep_counts(counts, expire > 0 and expire or COUNTS_KEPT)
  end
  return 'empty'
end
keep_counts(counts, expire > 0 and ahead(keys, now) + expire or 0)
live_on(keys, life, now)
return 'kept'
