-- How fast a bulk job sends, and up to which depth of the queue.
-- @include rate

-- Returns how many messages are in a queue, delayed ones in either layout among them. Cost O(1).
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
  local wait = wait_of(job, rate, now)
  if wait > 0 then
    return { 'wait', string.format('%.17g', wait) }
  elseif depth == 0 then
    return nil
  end
  local found = depth_of(to)
  return found + count > depth and { 'deep', found } or nil
end
