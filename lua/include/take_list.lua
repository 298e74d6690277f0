-- What a transfer takes from the backup in Redisson's form.
-- @include slices
-- @include clear

-- Reads up to `count` messages that are due, oldest first, and no more than about `bytes` of them. Returns as `opened`.
-- Redisson's are due from 0 on; what another program has put before that is taken last. Cost O(log N + count).
local function take(keys, now, count, bytes)
  local from = 0
  local function fetch(skip, ask)
    return redis.call('ZRANGEBYSCORE', keys.due, from, now, 'WITHSCORES', 'LIMIT', skip, ask)
  end
  local entries, dues = slices(fetch, count, bytes)
  if #entries == 0 and redis.call('ZCOUNT', keys.due, '-inf', '(0') > 0 then
    from = '-inf'
    entries, dues = slices(fetch, count, bytes)
  elseif #entries == 0 then
    clear(keys)
  end
  return opened(entries, dues)
end

-- Removes the messages that `take` has just returned. Cost O(log N) a message.
local function drop(keys, entries, bodies)
  remove_entries(keys, entries, names(keys, entries, bodies))
end
