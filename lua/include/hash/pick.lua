-- Messages that leave out of the order of their due times.
-- @include marks

-- Returns a short key by which a member is found again.
local function key_of(member)
  return member
end

-- Returns the member with this key and due time, if it waits and is due, else nil. Cost O(log N).
local function due_member(keys, key, _, now)
  local due_ms = redis.call('ZSCORE', keys.due, key)
  return due_ms and tonumber(due_ms) <= now and key or nil
end

-- Reads the bodies of members (false: missing). Returns bodies, priorities, bytes of all. Cost O(members).
local function read_picked(keys, members)
  local bodies, priorities, size = redis.call('HMGET', keys.bodies, unpack(ids_of(members))), {}, 0
  for i, value in ipairs(bodies) do
    if value then
      size = size + #value
      priorities[i], bodies[i] = opened(value)
    end
  end
  return bodies, priorities, size
end

-- Removes members, whatever their due times. Cost O(log N) a message.
local function pull(keys, members)
  local ids = ids_of(members)
  redis.call('ZREM', keys.due, unpack(members))
  redis.call('HDEL', keys.bodies, unpack(ids))
  redis.call('ZREM', keys.ids, unpack(ids))
end
