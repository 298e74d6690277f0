-- Reads the messages that are due, and removes them after the push.
-- @include names remove slices

-- Returns how many messages a transfer reads first, while it does not know their size.
local function at_first()
  return FIRST
end

-- Whether a part of a batch is pushed and removed before the next part is read: no. A removal looks at one other entry
-- or more, which may be large; so all messages leave together.
local function leaves_in_parts()
  return false
end

-- Reads `count` messages that are due, oldest first, after `skip` of them. Returns entries, messages (false: the entry
-- has none), priorities, bytes of all, the first due time, the last. For Redisson due times begin at 0; a message to
-- which another program gave a negative one is taken last. Cost O(log N + skip + count).
local function read_due(keys, now, skip, count)
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
  local priorities, bodies = parsed(entries)
  return entries, bodies, priorities, size, found[2], found[#found]
end

-- Returns when the next message is due, or nil. With `is_large` and a message that is already due, returns `now`: Redis
-- returns no due time without the entry, which may be large. Cost O(log N).
local function next_due(keys, now, is_large)
  if is_large and redis.call('ZCOUNT', keys.due, '-inf', now) > 0 then
    return string.format('%.17g', now)
  end
  return redis.call('ZRANGE', keys.due, 0, 0, 'WITHSCORES')[2]
end

-- Removes the messages that `read_due` has just returned. Cost O(log N) a message.
local function drop(keys, entries, bodies)
  remove_entries(keys, entries, names(keys, entries, bodies))
end
