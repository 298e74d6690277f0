-- The default backup. In the ZSET `due` a message is a member, order .. id; in the HASH `backup` it is the
-- field id with the value order .. priority .. body. order: 8 hex digits that grow with every message of the
-- queue, so that members with an equal due time sort as they were published. priority: one digit, 0-9.
-- Source: DESIGN "Redis data, per queue".
local ORDER = 8
local HEAD = ORDER + 1 -- what stands before the body

-- Stores a message under its id; equal bytes are stored once, other bytes under a taken id get their own.
-- keys: due, backup, order. Returns 'offered', 'repeated' or 'renamed'. Cost O(log N).
local function put(keys, id, due_ms, priority, body)
  local state = 'offered'
  local order = string.format('%08x', redis.call('INCR', keys.order) % 4294967296)
  local value = order .. priority .. body
  if redis.call('HSETNX', keys.backup, id, value) == 0 then
    if string.sub(redis.call('HGET', keys.backup, id), HEAD) == priority .. body then
      return 'repeated'
    end
    id = id .. '~' .. string.sub(redis.sha1hex(priority .. body), 1, 16)
    if redis.call('HSETNX', keys.backup, id, value) == 0 then
      return 'repeated'
    end
    state = 'renamed'
  end
  redis.call('ZADD', keys.due, due_ms, order .. id)
  return state
end

-- Reads up to `count` messages that are due, oldest first, and no more than about `bytes` of them.
-- Returns members, their due times, their values (false: the body is missing). Cost O(log N + count).
local function take(keys, now, count, bytes)
  local found = redis.call('ZRANGEBYSCORE', keys.due, '-inf', now, 'WITHSCORES', 'LIMIT', 0, count)
  local members, dues, values = {}, {}, {}
  local size, slice, read = 0, 1, 0
  while read < #found / 2 and size < bytes do
    local ids = {}
    for i = read + 1, math.min(read + slice, #found / 2) do
      members[i], dues[i] = found[2 * i - 1], found[2 * i]
      ids[#ids + 1] = string.sub(members[i], HEAD)
    end
    for i, value in ipairs(redis.call('HMGET', keys.backup, unpack(ids))) do
      values[read + i] = value
      size = size + (value and #value or 0)
    end
    read, slice = read + #ids, math.min(slice * 2, 64)
  end
  return members, dues, values
end

-- Removes messages by member, as `take` returned them. Cost O(log N) a message.
local function drop(keys, members)
  local ids = {}
  for i, member in ipairs(members) do
    ids[i] = string.sub(member, HEAD)
  end
  redis.call('ZREM', keys.due, unpack(members))
  redis.call('HDEL', keys.backup, unpack(ids))
end
