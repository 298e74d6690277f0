-- Finds messages by their ids, and changes those found.
-- @include duplicates marks put

-- Returns the waiting message that is stored under exactly this id: id, member, due, priority, body; or nil.
-- Cost O(log N).
local function stored(keys, id)
  local value = redis.call('HGET', keys.bodies, id)
  if not value then
    return nil
  end
  local member = member_of(id, value)
  local due_ms = redis.call('ZSCORE', keys.due, member)
  if not due_ms then
    return nil
  end
  local priority, body = opened(value)
  return { id = id, member = member, due = due_ms, priority = priority, body = body }
end

-- Returns the message that waits under an id, and up to `count` others: its duplicates, and tasks that have the id as
-- their waiting key. Cost O(log N) a message found.
local function find(keys, id, count)
  local found = { stored(keys, id) }
  local first, beyond = '[' .. id .. '~', '(' .. id .. '~l' -- hex digits, or k before them
  for _, duplicate in ipairs(redis.call('ZRANGEBYLEX', keys.ids, first, beyond, 'LIMIT', 0, count)) do
    local shared = string.sub(duplicate, 1, -DUPLICATE_SUFFIX - 1)
    if shared == id or waiting_key(shared) == id then -- the latter is a duplicate of a task of the key
      found[#found + 1] = stored(keys, duplicate)
    end
  end
  return found
end

-- Removes a message that was found. Cost O(log N).
local function remove(keys, message)
  redis.call('ZREM', keys.due, message.member)
  redis.call('HDEL', keys.bodies, message.id)
  redis.call('ZREM', keys.ids, message.id)
end

-- Gives a message that was found another due time and another body. Cost O(log N).
local function replace(keys, message, due_ms, body)
  local is_duplicate = redis.call('ZSCORE', keys.ids, message.id)
  remove(keys, message)
  put(keys, message.id, due_ms, message.priority, body, true) -- again = true: its new bytes may equal a duplicate's
  if is_duplicate then
    redis.call('ZADD', keys.ids, 0, message.id)
  end
end
