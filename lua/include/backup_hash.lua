-- The default backup: the ZSET `due` has the id of each message, the HASH `backup` its body under the id, either
-- with a mark where one is needed.
-- @include marks

-- Stores a message under its id; equal bytes are stored once, other bytes under a taken id get their own.
-- keys: due, backup, order. Returns 'offered', 'repeated' or 'renamed'. Cost O(log N).
local function put(keys, id, due_ms, priority, body)
  local mark, value, state = '', body, 'offered'
  if needs_mark(id, priority, body) or redis.call('ZCOUNT', keys.due, due_ms, due_ms) > 0 then
    mark = new_mark(keys.order)
    value = mark .. priority .. body
  end
  if redis.call('HSETNX', keys.backup, id, value) == 0 then
    local kept_priority, kept = opened(redis.call('HGET', keys.backup, id))
    if kept == body and kept_priority == priority then
      return 'repeated'
    end
    id = id .. '~' .. string.sub(redis.sha1hex(priority .. body), 1, 16)
    if redis.call('HSETNX', keys.backup, id, value) == 0 then
      return 'repeated'
    end
    state = 'renamed'
  end
  redis.call('ZADD', keys.due, due_ms, mark .. id)
  return state
end

-- Reads up to `count` messages that are due, oldest first, and no more than about `bytes` of them.
-- Returns members, their due times, their priorities, their bodies (false: it is missing). Cost O(log N + count).
local function take(keys, now, count, bytes)
  local found = redis.call('ZRANGEBYSCORE', keys.due, '-inf', now, 'WITHSCORES', 'LIMIT', 0, count)
  local members, dues, priorities, bodies = {}, {}, {}, {}
  local size, slice, read = 0, 1, 0
  while read < #found / 2 and size < bytes do
    local ids = {}
    for i = read + 1, math.min(read + slice, #found / 2) do
      members[i], dues[i] = found[2 * i - 1], found[2 * i]
      ids[#ids + 1] = id_of(members[i])
    end
    for i, value in ipairs(redis.call('HMGET', keys.backup, unpack(ids))) do
      if value then
        priorities[read + i], bodies[read + i] = opened(value)
        size = size + #value
      else
        bodies[read + i] = false
      end
    end
    read, slice = read + #ids, math.min(slice * 2, 64)
  end
  return members, dues, priorities, bodies
end

-- Removes the messages that `take` has just returned, by their members: the first ones by due time.
-- Cost O(log N) a message.
local function drop(keys, members)
  local ids = {}
  for i, member in ipairs(members) do
    ids[i] = id_of(member)
  end
  redis.call('ZREMRANGEBYRANK', keys.due, 0, #members - 1)
  redis.call('HDEL', keys.backup, unpack(ids))
end
