-- A bulk job. Fields of the HASH job: state ('open', 'aborted' or 'committed'), run (number of the latest run that has
-- begun), base (when the job began, ms since the epoch), next (when its rate lets more messages through, ms since the
-- epoch), ended (when it was committed or aborted, ms since the epoch), and what the driver has counted by the end:
-- rows, bad, dead_lettered, cancelled, offered and fresh. A job that an earlier version has begun may have staged '1',
-- and the state 'publishing': that version sends its messages when it is committed.
-- The job as a whole has such a HASH, and so has its part in the slot of each queue. That of the whole has closed (the
-- run whose end has come to all parts); those of the parts have enqueued (count of their messages), kept (of those that
-- another one kept out), and replaced (of those in the place of another one).

-- Returns nil when this run may write, else the reason why it may not: 'committed', 'aborted', 'superseded' (a later
-- run has begun) or 'unknown' (this run has not begun). Cost O(1).
local function fenced(job, run)
  local state, latest = unpack(redis.call('HMGET', job, 'state', 'run'))
  if not state then
    return 'unknown'
  elseif state == 'committed' or state == 'publishing' then
    return 'committed'
  elseif tonumber(run) == tonumber(latest) then
    return state == 'aborted' and 'aborted' or nil
  end
  return tonumber(run) < tonumber(latest) and 'superseded' or 'unknown'
end

-- Whether the part of a job in the slot of a queue belongs to an earlier job of the same name: it began at another
-- time, before this run. Cost O(1).
local function is_of_earlier(job, base, run)
  local began, latest = unpack(redis.call('HMGET', job, 'base', 'run'))
  return began and began ~= base and tonumber(run) > tonumber(latest)
end

-- Adds to fields of a job what is not 0. Cost O(1).
local function count_in(job, counts)
  for field, number in pairs(counts) do
    if number ~= 0 then
      redis.call('HINCRBY', job, field, number)
    end
  end
end

-- Keeps the keys of a job for `ttl` ms from now on. Cost O(1).
local function keep_all(keys, ttl)
  for _, key in ipairs(keys) do
    redis.call('PEXPIRE', key, ttl)
  end
end
