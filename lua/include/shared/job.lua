-- A bulk job. HASH job: state ('open', 'aborted', 'publishing' or 'committed'), run (number of the latest run that took
-- part), staged ('1' when it stages its messages), base (when the job began, ms since the epoch), next (when its rate
-- lets more messages through, ms since the epoch), enqueued (count of its messages).

-- How many entries of the list of staged messages a message takes: queue, id, due, priority, body.
local ENTRIES = 5

-- Returns nil when this run may write, else why not: 'committed', 'aborted', 'superseded' by a later run, or
-- 'unknown', when the run has not begun. Cost O(1).
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

-- Keeps the keys of a job for `ttl` ms from now on. Cost O(1).
local function keep_all(keys, ttl)
  for _, key in ipairs(keys) do
    redis.call('PEXPIRE', key, ttl)
  end
end
