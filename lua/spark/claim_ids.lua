-- Claims ids of a bulk job that runs or will run, so that none of its runs sends them.
-- KEYS job    HASH  state of the job
-- KEYS guard  HASH  ids that the job has sent or claimed
-- ARGV ttl     NUMBER  how long the guard is kept from now on at least, ms
-- ARGV ids...
-- Returns {'claimed', for each id 1 when it is claimed now, 0 when the job had sent or claimed it}; or {'committed'},
-- with nothing changed
-- Atomic: an id is claimed before the job sends it, or not at all.
-- Cost: O(1) an id
-- @include job

local state = redis.call('HGET', job, 'state')
if state == 'committed' or state == 'publishing' then
  return { 'committed' }
end
local reply = { 'claimed' }
for i, id in ipairs(ids) do
  reply[i + 1] = redis.call('HSETNX', guard, id, '')
end
if redis.call('PTTL', guard) < ttl then
  keep_all({ guard }, ttl)
end
return reply
