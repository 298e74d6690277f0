-- Notes which run of a bulk job has its files named by the manifest of its far tier: the first one that asks.
-- KEYS[1] job  HASH  state of the job
-- ARGV[1] run    number of the run that asks; its prepared manifest is complete
-- ARGV[2] fresh  how long another run stays chosen after it asked, ms
-- ARGV[3] ttl    how long the job is kept from now on, ms
-- Returns {'chosen', number of the run}; or, with nothing changed, {'committed' | 'aborted' | 'superseded' | 'unknown'}
-- when this run may not write
-- Atomic: of all runs that ask within `fresh`, one is chosen.
-- Cost: O(1)
-- @include clock job wrong_type

local job, run, fresh, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now = now_ms()

local wrong = wrong_type({ [job] = 'hash' })
if wrong then
  return wrong
end
local word = fenced(job, run)
if word then
  return { word }
end
local chosen, since = unpack(redis.call('HMGET', job, 'chosen', 'chosen_at'))
if not chosen or now - tonumber(since) > fresh then
  chosen = run
  redis.call('HSET', job, 'chosen', run, 'chosen_at', string.format('%.17g', now))
end
keep_all({ job }, ttl)
return { 'chosen', chosen }
