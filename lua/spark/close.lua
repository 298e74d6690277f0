-- Notes that all parts of a bulk job have ended.
-- KEYS job  HASH  state of the job as a whole
-- ARGV run  number of the run that has ended
-- ARGV ttl  NUMBER  how long the job is kept from now on, ms
-- Returns 'closed'; or, with nothing changed, 'unknown' when Redis has forgotten the job, 'superseded' when a later run
-- has begun
-- Atomic: all or nothing.
-- Cost: O(1)

local latest = redis.call('HGET', job, 'run')
if latest ~= run then
  return latest and 'superseded' or 'unknown'
end
-- A full Redis refuses a script whose first write needs memory, and lets later writes pass. The end of a job frees much
-- memory, so the first write here is one that needs none.
redis.call('PEXPIRE', job, ttl)
redis.call('HSET', job, 'closed', run)
return 'closed'
