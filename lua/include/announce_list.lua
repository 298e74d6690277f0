-- Runs `store`, and tells the transfer workers, Redisson's and ours, when that gave the queue a new head.
-- A wake message that cannot be sent (ACL) costs one poll interval, so it never fails the publish.
-- Returns 'first' (the queue was empty), 'head' or 'behind'. Cost O(log N).
-- @include clear
-- @include sweep

-- How many records are looked at for each message stored: where Redisson transfers all, nobody else forgets them.
local FORGOTTEN = 8

local function announce(keys, wake, _, store)
  clear(keys)
  local known = is_tail_known(keys)
  keys.fresh = {}
  store()
  local entries, tail = keys.fresh, keys.tail
  keys.fresh, keys.tail = nil, nil -- so that keys has the names of keys alone
  if known and tail then
    redis.call('HSET', keys.order, 'tail', tail)
  end
  local fresh = 0
  for _ in pairs(entries) do
    fresh = fresh + 1
  end
  if fresh > 0 then
    forget(keys, FORGOTTEN * fresh)
  end
  local head = redis.call('ZRANGE', keys.due, 0, 0)[1]
  if not entries[head] then
    return 'behind'
  end
  redis.pcall('PUBLISH', wake, redis.call('ZSCORE', keys.due, head))
  return redis.call('ZCARD', keys.due) == fresh and 'first' or 'head'
end
