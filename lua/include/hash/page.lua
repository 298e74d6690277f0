-- @include marks

-- Reads messages by their rank in due time, from `start` on, until there are `count` or about `bytes`.
-- Returns members, due times, priorities, bodies (false: missing). Cost O(log N + count).
local function page(keys, start, count, bytes)
  local found = redis.call('ZRANGE', keys.due, start, start + count - 1, 'WITHSCORES')
  local members, dues, priorities, bodies = {}, {}, {}, {}
  local size, slice, done = 0, 1, 0
  while done < #found / 2 and size < bytes do
    local ids = {}
    for i = done + 1, math.min(done + slice, #found / 2) do
      members[i], dues[i] = found[2 * i - 1], found[2 * i]
      ids[#ids + 1] = id_of(members[i])
    end
    for i, value in ipairs(redis.call('HMGET', keys.bodies, unpack(ids))) do
      if value then
        priorities[done + i], bodies[done + i] = opened(value)
        size = size + #value
      else
        bodies[done + i] = false
      end
    end
    done, slice = done + #ids, math.min(slice * 2, 64)
  end
  return members, dues, priorities, bodies
end

-- Returns members and due times in turn, and the stored length of each: bytes of body and mark, 0 when the body is
-- missing. Ends at `count` messages or about `bytes`, as `page` does. Cost O(log N + count).
local function measure(keys, start, count, bytes)
  local found = redis.call('ZRANGE', keys.due, start, start + count - 1, 'WITHSCORES')
  local lengths, size = {}, 0
  for i = 1, #found, 2 do
    if size >= bytes then
      found[i], found[i + 1] = nil, nil
    else
      lengths[#lengths + 1] = redis.call('HSTRLEN', keys.bodies, id_of(found[i]))
      size = size + lengths[#lengths]
    end
  end
  return found, lengths
end

-- Returns the ids under which messages are stored.
local function stored_as(_, members)
  return ids_of(members)
end

-- Returns the cursor of a member, where a page can end: here the member itself.
local function cursor_of(member)
  return member
end
