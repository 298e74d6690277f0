-- What a transfer takes from the backup in Redisson's form.
-- @include slices
-- @include clear

-- How many entries of which nothing is known are read at once.
local function at_first()
  return FIRST
end

-- Whether a part of a batch leaves before the next is read. What leaves lets others be looked at, if not many at least
-- one, which may be large: so all leave together.
local function leaves_in_parts()
  return false
end

-- Reads `count` messages that are due, oldest first, after `skip` of them. Returns entries, messages (false: there is
-- none), priorities, bytes of all, and the first due time. Redisson's are due from 0 on; what another program has put
-- before that is taken last. Cost O(log N + skip + count).
local function take(keys, now, skip, count)
  local found = redis.call('ZRANGEBYSCORE', keys.due, 0, now, 'WITHSCORES', 'LIMIT', skip, count)
  if #found == 0 and skip == 0 and redis.call('ZCOUNT', keys.due, '-inf', '(0') > 0 then
    found = redis.call('ZRANGEBYSCORE', keys.due, '-inf', '(0', 'WITHSCORES', 'LIMIT', 0, count)
  elseif #found == 0 and skip == 0 then
    clear(keys)
  end
  local entries, size = {}, 0
  for i = 1, #found / 2 do
    entries[i] = found[2 * i - 1]
    size = size + #entries[i]
  end
  local _, _, priorities, bodies = opened(entries)
  return entries, bodies, priorities, size, found[2]
end

-- Returns when the next message is due, or nil; with `is_large` only `now` where one is due already, for Redis gives no
-- due time without the entry. Cost O(log N).
local function next_due(keys, now, is_large)
  if is_large and redis.call('ZCOUNT', keys.due, '-inf', now) > 0 then
    return string.format('%.17g', now)
  end
  return redis.call('ZRANGE', keys.due, 0, 0, 'WITHSCORES')[2]
end

-- Removes the messages that `take` has just returned. Cost O(log N) a message.
local function drop(keys, entries, bodies)
  remove_entries(keys, entries, names(keys, entries, bodies))
end
