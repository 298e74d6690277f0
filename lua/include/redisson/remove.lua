-- @include forget large sweep unindex

-- LREM goes through the whole list, so it removes an entry only where the list has up to SHORT entries. For an entry
-- larger than LARGE the list may have FOR_BYTES entries for each of its bytes, up to LONG: a sweep would read eight
-- times its bytes.
local SHORT, FOR_BYTES, LONG = 100, 1 / 8, 10000

-- A sweep looks at PACE entries for each entry that leaves, and at PACE bytes for each of its bytes; in a call at LEAST
-- bytes or more, and at MOST_BYTES or fewer.
local PACE, LEAST, MOST_BYTES = 8, 100000, 500000

local function is_short_for(entry, length)
  return length <= SHORT or #entry > LARGE and length <= math.min(#entry * FOR_BYTES, LONG)
end

-- Removes entries. ids: the ids of their messages. Cost O(log N) an entry.
local function remove_entries(keys, entries, ids)
  local length, left, bytes = redis.call('LLEN', keys.bodies), 0, 0
  for _, entry in ipairs(entries) do
    if is_short_for(entry, length) then
      redis.call('LREM', keys.bodies, 1, entry)
    else
      left, bytes = left + 1, bytes + #entry
    end
  end
  redis.call('ZREM', keys.due, unpack(entries))
  if redis.call('EXISTS', keys.due) == 0 then
    redis.call('UNLINK', keys.bodies, keys.notes, keys.ids)
    return
  end
  unindex(keys, entries, ids)
  if left > 0 then
    sweep(keys, PACE * left, math.min(math.max(PACE * bytes, LEAST), MOST_BYTES))
  end
  forget(keys, #entries)
end

-- Removes the rest of a queue whose last message another client has removed: garbage in the list, and our notes.
-- Without garbage Redisson's keys are not touched. Cost O(1).
local function clear(keys)
  if redis.call('EXISTS', keys.due) == 0 and redis.call('EXISTS', keys.bodies, keys.notes, keys.ids) > 0 then
    redis.call('UNLINK', keys.bodies, keys.notes, keys.ids)
  end
end
