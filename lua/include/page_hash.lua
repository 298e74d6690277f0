-- Pages of the default backup.
-- @include backup

-- Reads messages by their rank in due time, from `start` on, until there are `count` or about `bytes`. Returns as
-- `read`.
-- Cost O(log N + count).
local function page(keys, start, count, bytes)
  return read(keys, redis.call('ZRANGE', keys.due, start, start + count - 1, 'WITHSCORES'), bytes)
end

-- Returns members and due times in turn, as many as `page` would return, and the bytes that are stored of each: its
-- body and what its mark takes, or 0 when it is missing. Cost O(log N + count).
local function measure(keys, start, count, bytes)
  local found = redis.call('ZRANGE', keys.due, start, start + count - 1, 'WITHSCORES')
  local lengths, size = {}, 0
  for i = 1, #found, 2 do
    if size >= bytes then
      found[i], found[i + 1] = nil, nil
    else
      lengths[#lengths + 1] = redis.call('HSTRLEN', keys.backup, id_of(found[i]))
      size = size + lengths[#lengths]
    end
  end
  return found, lengths
end

-- Returns the ids under which messages are stored.
local function names(_, members)
  local ids = {}
  for i, member in ipairs(members) do
    ids[i] = id_of(member)
  end
  return ids
end

-- Returns what stands for a member where a page ends.
local function cursor_of(member)
  return member
end
