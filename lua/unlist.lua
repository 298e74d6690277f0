-- Makes queues unknown to the transfer workers, where names are in another slot, and notes their use; see `forget`.
-- KEYS[1] queues  SET   queues that hold or held delayed messages
-- KEYS[2] used    ZSET  the same queues -> time of last use, ms since the epoch
-- ARGV[1] kept     times of use that are older are removed, ms; 0 to keep all
-- ARGV[2] leaving  how many names become unknown
-- ARGV[3...] those names, then the names of queues that are in use
-- Returns 'unlisted'
-- Atomic: a name that leaves has a time of use, by which it is found again should the caller die.
-- Cost: O(log queues) a name
-- @include clock wrong_type

local queues, used = KEYS[1], KEYS[2]
local kept, leaving, now = tonumber(ARGV[1]), tonumber(ARGV[2]), now_ms()

local wrong = wrong_type({ [queues] = 'set', [used] = 'zset' })
if wrong then
  return wrong
end
-- A full Redis refuses a script whose first write needs memory, and lets later writes pass. To forget frees memory, so
-- the first write here is one that needs none, even where it changes nothing.
redis.call('ZREMRANGEBYSCORE', used, '-inf', kept > 0 and now - kept or '-inf')
for n = 3, #ARGV do
  if n < 3 + leaving then
    redis.call('ZADD', used, 'NX', now, ARGV[n])
    redis.call('SREM', queues, ARGV[n])
  else
    redis.call('ZADD', used, now, ARGV[n])
  end
end
return 'unlisted'
