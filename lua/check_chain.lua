-- Asks whether a delay chain may take its next step, and notes the step.
-- KEYS[1] cancelled  ZSET  ids whose chains take no step -> end of that ban, ms since the epoch
-- KEYS[2] chains     ZSET  ids of chains -> due time of the latest step; '' -> inf where chains are in use
-- ARGV[1] ttl   for how many ms after its due time a step may still run
-- ARGV[2] most  how many past due times `chains` keeps, the latest ones
-- ARGV[3] id
-- ARGV[4] due   ms since the epoch, or '+' and ms from now
-- Returns 'ready', or 'cancelled' with no step noted
-- Atomic: a chain that is cancelled later is known by then. Whoever stores a step asks before and again after.
-- Cost: O(log N)
-- @include chain clock wrong_type

local cancelled, chains = KEYS[1], KEYS[2]
local ttl, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local id, due = ARGV[3], ARGV[4]
local now = now_ms()

local wrong = wrong_type({ [cancelled] = 'zset', [chains] = 'zset' })
if wrong then
  return wrong
end
if is_cancelled(cancelled, chains, id, now) then
  return 'cancelled'
end
note_step(chains, id, at(due, now), now, ttl, most)
return 'ready'
