-- Begins a run of a bulk job: from then on earlier runs of the job can no longer write.
-- KEYS[1] job     HASH    state of the job
-- KEYS[2] guard   HASH    ids that the job has sent or claimed
-- KEYS[3] staged  LIST    messages to be sent when the job is committed
-- KEYS[4] stream  STRING  name of the job that a stream works on
-- ARGV[1] run        number of the run; later ones are larger
-- ARGV[2] ttl        how long job, guard and staged messages are kept from now on, ms
-- ARGV[3] name       name of the job, written to `stream`; '' for a job that belongs to no stream
-- ARGV[4] is_staged  '1' when the run stages its messages, '0' when it sends them
-- ARGV[5] base       of a part of a job: when the job began, ms since the epoch; '' for now
-- Returns {'open' | 'committed' | 'aborted' | 'superseded' | 'mixed', when the job began, ms since the epoch}; this run
-- may write only after 'open'; 'mixed': an earlier run has sent messages and this run would stage them, or the reverse
-- Atomic: the job begins once, with the first of its tasks that calls.
-- Cost: O(1)
-- @include clock job

local run, ttl, name, is_staged, base = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local now = now_ms()

if base ~= '' and is_of_earlier(job, base, run) then -- Redis forgets the parts of a job later than the job
  redis.call('UNLINK', job, guard, staged)
end
local word = fenced(job, run)
if word == 'unknown' then -- a new job, or a later run
  word = (redis.call('HGET', job, 'staged') or is_staged) ~= is_staged and 'mixed' or nil
  if not word then
    -- First what needs memory: after another write a full Redis would refuse nothing.
    redis.call('HSET', job, 'state', 'open', 'run', run, 'staged', is_staged)
    redis.call('HDEL', job, 'ended')
    redis.call('HSETNX', job, 'base', base ~= '' and base or string.format('%.17g', now))
  end
end
if not word then
  keep_all({ job, guard, staged }, ttl) -- the job must not outlive the guard, or an id could be sent twice
  if name ~= '' then
    redis.call('SET', stream, name, 'PX', ttl)
  end
end
return { word or 'open', redis.call('HGET', job, 'base') }
