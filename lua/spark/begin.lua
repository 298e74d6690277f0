-- Begins a run of a bulk job: from then on earlier runs of the job can no longer write.
-- KEYS job     HASH    state of the job
-- KEYS guard   HASH    ids that the job has sent or claimed
-- KEYS stream  STRING  name of the job that a stream works on
-- ARGV run   number of the run; later ones are larger
-- ARGV ttl   NUMBER  how long job and guard are kept from now on, ms
-- ARGV name  name of the job, written to `stream`; '' for a job that belongs to no stream
-- ARGV base  of a part of a job: when the job began, ms since the epoch; '' for now
-- Returns {'open' | 'committed' | 'aborted' | 'superseded' | 'mixed', when the job began, ms since the epoch}; this run
-- may write only after 'open'; 'mixed': a run of an earlier version has staged messages, which are not sent
-- Atomic: the job begins once, with the first of its tasks that calls.
-- Cost: O(1)
-- @include clock job

local now = now_ms()

if base ~= '' and is_of_earlier(job, base, run) then -- Redis forgets the parts of a job later than the job
  redis.call('UNLINK', job, guard)
end
local word = fenced(job, run)
if word == 'unknown' then -- a new job, or a later run
  word = redis.call('HGET', job, 'staged') == '1' and 'mixed' or nil
  if not word then
    -- First what needs memory: after another write a full Redis would refuse nothing.
    redis.call('HSET', job, 'state', 'open', 'run', run, 'staged', '0')
    redis.call('HDEL', job, 'ended')
    redis.call('HSETNX', job, 'base', base ~= '' and base or string.format('%.17g', now))
  end
end
if not word then
  keep_all({ job, guard }, ttl) -- the job must not outlive the guard, or an id could be sent twice
  if name ~= '' then
    redis.call('SET', stream, name, 'PX', ttl)
  end
end
return { word or 'open', redis.call('HGET', job, 'base') }
