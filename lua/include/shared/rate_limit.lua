-- How fast a bulk job sends, and up to which depth of the queue.

-- After a pause a job may catch up with this many ms of its rate at most.
local CATCH_UP_MS = 100

-- Returns how many messages are in a queue, delayed ones in either form of backup among them. Cost O(1).
local function depth_of(to)
  local found, counted = redis.call('ZCARD', to.keys.due), {}
  if to.other ~= to.keys.due then
    found = found + redis.call('ZCARD', to.other)
  end
  for i = to.first_list, #KEYS do
    if not counted[KEYS[i]] then -- a priority step may be named twice
      counted[KEYS[i]] = true
      found = found + redis.call('LLEN', KEYS[i])
    end
  end
  return found
end

-- Returns nil when the job may send `count` messages now, else {'wait', ms} or {'deep', number in the queue}.
-- rate: messages a second; depth: largest number of messages in the queue, delayed ones among them; 0: no limit.
-- Cost O(1).
local function held_up(job, rate, depth, to, count, now)
  local wait = rate > 0 and tonumber(redis.call('HGET', job, 'next') or 0) - now or 0
  if wait > 0 then
    return { 'wait', string.format('%.17g', wait) }
  elseif depth == 0 then
    return nil
  end
  local found = depth_of(to)
  return found + count > depth and { 'deep', found } or nil
end

-- Notes that the job has sent `count` messages. Cost O(1).
local function sent(job, rate, count, now)
  if rate > 0 then
    local from = math.max(tonumber(redis.call('HGET', job, 'next') or 0), now - CATCH_UP_MS)
    redis.call('HSET', job, 'next', string.format('%.17g', from + count * 1000 / rate))
  end
end
