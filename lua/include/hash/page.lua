-- @include budget marks

-- Reads members by their rank in due time, from `start` on, until there are `count`, or `read` has enough, or it takes
-- long. read: function of some members, with their due times in turn, and of how many there were before; returns
-- whether to go on. Cost O(log N + count).
local function slices(keys, start, count, read)
  local done, ask, has_time = 0, math.min(1, count), time_budget()
  while ask > 0 do
    local found = redis.call('ZRANGE', keys.due, start + done, start + done + ask - 1, 'WITHSCORES')
    local goes_on = #found > 0 and read(found, done) and has_time(ask) and #found == 2 * ask
    done = done + #found / 2
    ask = goes_on and math.min(2 * ask, 64, count - done) or 0
  end
end

-- Reads messages by their rank in due time, from `start` on, until there are `count` or about `bytes`, or it takes
-- long. Returns members, due times, priorities, bodies (false: missing). Cost O(log N + count).
local function page(keys, start, count, bytes)
  local members, dues, priorities, bodies, size = {}, {}, {}, {}, 0
  slices(keys, start, count, function(found, done)
    local ids = {}
    for i = 1, #found / 2 do
      members[done + i], dues[done + i] = found[2 * i - 1], found[2 * i]
      ids[i] = id_of(found[2 * i - 1])
    end
    for i, value in ipairs(redis.call('HMGET', keys.bodies, unpack(ids))) do
      if value then
        priorities[done + i], bodies[done + i] = opened(value)
        size = size + #value
      else
        bodies[done + i] = false
      end
    end
    return size < bytes
  end)
  return members, dues, priorities, bodies
end

-- Returns members and due times in turn, and the stored length of each: bytes of body and mark, 0 when the body is
-- missing. Ends as `page` does. Cost O(log N + count).
local function measure(keys, start, count, bytes)
  local measured, lengths, size = {}, {}, 0
  slices(keys, start, count, function(found)
    for i = 1, #found, 2 do
      if size < bytes then
        measured[#measured + 1], measured[#measured + 2] = found[i], found[i + 1]
        lengths[#lengths + 1] = redis.call('HSTRLEN', keys.bodies, id_of(found[i]))
        size = size + lengths[#lengths]
      end
    end
    return size < bytes
  end)
  return measured, lengths
end

-- Returns the ids under which messages are stored.
local function stored_as(_, members)
  return ids_of(members)
end

-- Returns the cursor of a member, where a page can end: here the member itself.
local function cursor_of(member)
  return member
end
