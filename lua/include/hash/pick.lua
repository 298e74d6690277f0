-- Messages that leave out of the order of their due times.
-- @include marks

-- Reads the priorities of messages by their rank in due time, from `start` on, until there are `count` or about `bytes`
-- are read: the value of an unmarked message is not. Returns members, due times, priorities. Cost O(log N + count).
local function priorities_at(keys, start, count, bytes)
  local found = redis.call('ZRANGE', keys.due, start, start + count - 1, 'WITHSCORES')
  local members, dues, priorities, marked, done = {}, {}, {}, {}, 0
  for i = 1, #found, 2 do
    members[#members + 1], dues[#dues + 1], priorities[#priorities + 1] = found[i], found[i + 1], '0'
    marked[#marked + 1] = is_marked(found[i]) and #members or nil
  end
  local slice = 1
  while done < #marked and bytes > 0 do
    local some, ids = { unpack(marked, done + 1, math.min(done + slice, #marked)) }, {}
    for i, place in ipairs(some) do
      ids[i] = id_of(members[place])
    end
    for i, value in ipairs(redis.call('HMGET', keys.bodies, unpack(ids))) do
      if value then
        priorities[some[i]] = string.match(value, '^\127........(%d)') or '0'
        bytes = bytes - #value
      end
    end
    done, slice = done + #some, math.min(slice * 2, 64)
  end
  for i = #members, (marked[done + 1] or #members + 1), -1 do
    members[i], dues[i], priorities[i] = nil, nil, nil
  end
  return members, dues, priorities
end

-- Returns a short key under which an index may have a member.
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
