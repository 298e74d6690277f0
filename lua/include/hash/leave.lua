-- How messages leave for the other layout in a conversion.
-- @include due duplicates marks

-- Returns the ids under which messages were offered; for a duplicate, the id that it shares. Cost O(log N) a message.
local function offered_as(keys, members)
  local ids = {}
  for i, member in ipairs(members) do
    local id = id_of(member)
    local is_duplicate = may_be_duplicate(id) and not is_keyed(id) and redis.call('ZSCORE', keys.ids, id)
    ids[i] = is_duplicate and string.sub(id, 1, -DUPLICATE_SUFFIX - 1) or id
  end
  return ids
end

-- Removes the first messages by due time. Cost O(log N) a message.
local function leave(keys, members)
  drop(keys, members)
  if redis.call('EXISTS', keys.due, keys.bodies) == 0 then
    redis.call('UNLINK', keys.notes, keys.ids)
  end
end

-- Returns how many bodies are left once no message waits; 0 while one does. Cost O(1).
local function stranded(keys)
  return redis.call('EXISTS', keys.due) == 0 and redis.call('HLEN', keys.bodies) or 0
end
