-- Claims ids of a bulk job that runs or will run, so that none of its runs sends them.
-- KEYS[1] job    HASH  state of the job
-- KEYS[2] guard  HASH  ids that the job has sent or claimed
-- ARGV[1] ttl  how long the guard is kept from now on at least, ms
-- ARGV[2...] ids
-- Returns {'claimed', for each id 1 when it is claimed now, 0 when the job had sent or claimed it}; or {'committed'},
-- with nothing changed
-- Atomic: an id is claimed before the job sends it, or not at all.
-- Cost: O(1) an id
-- @include job

local ttl = tonumber(ARGV[1])

local state = redis.call('HGET', job, 'state')
if state == 'committed' or state == 'publishing' then
  return { 'committed' }
end
local reply = { 'claimed' }
for i = 2, #ARGV do
  reply[i] = redis.call('HSETNX', guard, ARGV[i], '')
end
if redis.call('PTTL', guard) < ttl then
  keep_all({ guard }, ttl)
end
return reply
