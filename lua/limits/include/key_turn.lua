-- @include member sub_queue

-- Most rests that one fetch ends.
local RESTS = 100

-- Returns up to `count` members of a key's sub-queue, the next ones. Cost O(log N).
local function next_in(sub, name, count)
  return redis.call('ZRANGEBYLEX', sub.base .. ':parked', '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', 0, count)
end

-- Gives a key its turn if it has a message that waits, a free place and no rest; otherwise takes it. Cost O(log N).
local function enter(sub, name, member)
  local key = key_in(sub, name)
  member = member or that_may(key) > 0 and next_in(sub, name, 1)[1]
  if not member or that_may(key) == 0 then
    redis.call('ZREM', sub.base .. ':turns', name)
    return false
  end
  key.time = math.max(key.time, sub.turn)
  redis.call('ZADD', sub.base .. ':turns', text_of(order_in(name, member) * STEP + key.time), name)
  return true
end

-- Lets a key rest until a time, ms since the epoch, unless it rests for longer.
local function set_rest(sub, name, till)
  local key = key_in(sub, name)
  key.rests = math.max(till, tonumber(key.rests or 0))
  redis.call('ZADD', sub.base .. ':rests', text_of(key.rests), name)
  redis.call('ZREM', sub.base .. ':turns', name)
end

-- Wakes a consumer that would take a message, if there is one, and forgets those that do not hear. Without the right to
-- look for one, consumers look themselves. Cost O(1).
local function wake_idle(sub)
  for _ = 1, 3 do
    local channel = redis.pcall('SRANDMEMBER', sub.base .. ':idle')
    if type(channel) ~= 'string' or redis.pcall('PUBLISH', channel, '') ~= 0 then
      return
    end
    redis.call('SREM', sub.base .. ':idle', channel)
  end
end

-- Gives keys their turns whose rest is over. Cost O(rests that are over).
local function end_rests(sub)
  local over = redis.call('ZRANGEBYSCORE', sub.base .. ':rests', '-inf', text_of(sub.now), 'LIMIT', 0, RESTS)
  for _, name in ipairs(over) do
    key_in(sub, name).rests = false
    redis.call('ZREM', sub.base .. ':rests', name)
    enter(sub, name)
  end
end
