-- How fast a bulk job sends.

-- After a pause a job may catch up with this many ms of its rate at most.
local CATCH_UP_MS = 100

-- Returns how long the job has to wait, in ms; 0 or less when it may send now. rate: messages a second, 0 for no limit.
-- Cost O(1).
local function wait_of(job, rate, now)
  return rate > 0 and tonumber(redis.call('HGET', job, 'next') or 0) - now or 0
end

-- Notes that the job has sent `count` messages. Cost O(1).
local function sent(job, rate, count, now)
  if rate > 0 then
    local from = math.max(tonumber(redis.call('HGET', job, 'next') or 0), now - CATCH_UP_MS)
    redis.call('HSET', job, 'next', string.format('%.17g', from + count * 1000 / rate))
  end
end
