-- Finds and removes messages of the default backup by their id.
-- @include backup
-- @include twins

-- Returns the waiting message that is stored under exactly this id: id, member, due, priority, body; or nil.
-- Cost O(log N).
local function stored(keys, id)
  local value = redis.call('HGET', keys.backup, id)
  if not value then
    return nil
  end
  local member = member_of(id, value)
  local due = redis.call('ZSCORE', keys.due, member)
  if not due then
    return nil
  end
  local priority, body = opened(value)
  return { id = id, member = member, due = due, priority = priority, body = body }
end

-- Returns the waiting messages of an id: the one stored under it, and up to `count` of its twins.
-- Cost O(log N) a message found.
local function find(keys, id, count)
  local found = { stored(keys, id) }
  local first, beyond = '[' .. id .. '~', '(' .. id .. '~g' -- a twin's suffix is hexadecimal
  for _, twin in ipairs(redis.call('ZRANGEBYLEX', keys.twins, first, beyond, 'LIMIT', 0, count)) do
    if #twin == #id + TWIN_SUFFIX then
      found[#found + 1] = stored(keys, twin)
    end
  end
  return found
end

-- Removes a message that was found. Cost O(log N).
local function remove(keys, message)
  redis.call('ZREM', keys.due, message.member)
  redis.call('HDEL', keys.backup, message.id)
  redis.call('ZREM', keys.twins, message.id)
end

-- Gives a message that was found another due time and another body. Cost O(log N).
local function replace(keys, message, due_ms, body)
  local is_twin = redis.call('ZSCORE', keys.twins, message.id)
  remove(keys, message)
  put(keys, message.id, due_ms, message.priority, body, true) -- also where it gets the bytes of its twin
  if is_twin then
    redis.call('ZADD', keys.twins, 0, message.id)
  end
end
