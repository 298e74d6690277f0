-- Reads the messages that are due, and removes them after the push.
-- @include duplicates marks

-- Returns how many messages a transfer reads first, while it does not know their size.
local function at_first()
  return 1
end

-- Whether a part of a batch is pushed and removed before the next part is read: yes, while the CPU's caches have it.
local function leaves_in_parts()
  return true
end

-- Returns when the next message is due, or nil. Cost O(1).
local function next_due(keys)
  return redis.call('ZRANGE', keys.due, 0, 0, 'WITHSCORES')[2]
end

-- Reads `count` messages that are due, oldest first, after `skip` of them. Returns members, bodies (false: missing),
-- priorities (nil where no body is missing and all are '0'), bytes of all, and with `dated` the first due time.
-- Cost O(log N + skip + count).
local function read_due(keys, now, skip, count, dated)
  local members = redis.call('ZRANGEBYSCORE', keys.due, '-inf', now, 'LIMIT', skip, count)
  if #members == 0 then
    return members
  end
  local bodies, priorities, size = redis.call('HMGET', keys.bodies, unpack(ids_of(members))), nil, 0
  local byte = string.byte
  for i = 1, #bodies do
    local body = bodies[i]
    if not body then
      priorities = priorities or {}
    else
      size = size + #body
      if byte(body) == MARK_BYTE then
        priorities = priorities or {}
        priorities[i], bodies[i] = opened(body)
      end
    end
  end
  return members, bodies, priorities, size, dated and next_due(keys)
end

-- Removes the messages that `read_due` has just returned, by their members: the first ones by due time.
-- Cost O(log N) a message.
local function drop(keys, members)
  local ids, duplicates = ids_of(members), {}
  for i = 1, #ids do
    if may_be_duplicate(ids[i]) then
      duplicates[#duplicates + 1] = ids[i]
    end
  end
  redis.call('ZREMRANGEBYRANK', keys.due, 0, #members - 1)
  redis.call('HDEL', keys.bodies, unpack(ids))
  if #duplicates > 0 then
    redis.call('ZREM', keys.ids, unpack(duplicates))
  end
end
