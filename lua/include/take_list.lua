-- What a transfer takes from the backup in Redisson's form.
-- @include slices
-- @include clear

-- Reads up to `count` messages that are due, oldest first, and no more than about `bytes` of them. Returns as `opened`.
-- Cost O(log N + count).
local function take(keys, now, count, bytes)
  local entries, dues = slices(function(skip, ask)
    return redis.call('ZRANGEBYSCORE', keys.due, 0, now, 'WITHSCORES', 'LIMIT', skip, ask)
  end, count, bytes)
  if #entries == 0 then
    clear(keys)
  end
  return opened(entries, dues)
end

-- Removes the messages that `take` has just returned. Cost O(log N) a message.
local function drop(keys, entries, bodies)
  remove_entries(keys, entries, names(keys, entries, bodies))
end
