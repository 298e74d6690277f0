-- Commits or aborts a bulk job: from then on none of its tasks can write.
-- KEYS job    HASH  state of the job
-- KEYS guard  HASH  ids that the job has sent or claimed
-- ARGV run         number of the run that ends; 0 for the latest
-- ARGV word        'committed' or 'aborted'
-- ARGV ttl         NUMBER  how long job and guard are kept from now on, ms
-- ARGV base        of a part of a job: when the job began, ms since the epoch; '' for now
-- ARGV counted...  field and number, of what the driver has counted
-- Returns the state of the job, 'committed' or 'aborted'; a job that has already ended keeps its state; or
-- 'superseded', with nothing changed, when a later run has begun
-- Atomic: a message of the job is sent before this or never.
-- Cost: O(1); Redis frees the memory in the background
-- @include clock job

local now = now_ms()

if run == '0' then
  run = redis.call('HGET', job, 'run') or '0'
end
local fence = fenced(job, run)
if fence and fence ~= 'unknown' then
  return fence
end
-- A full Redis refuses a script whose first write needs memory, and lets later writes pass. The end of a job frees much
-- memory, so the first write here is one that needs none, even where it changes nothing.
redis.call('PEXPIRE', guard, ttl)
if word == 'committed' then
  redis.call('UNLINK', guard) -- the state of the job refuses its ids from now on
end
redis.call('HSET', job, 'state', word, 'run', run, 'ended', string.format('%.17g', now))
if #counted > 0 then
  redis.call('HSET', job, unpack(counted))
end
redis.call('HSETNX', job, 'base', base ~= '' and base or string.format('%.17g', now))
redis.call('PEXPIRE', job, ttl)
return word
