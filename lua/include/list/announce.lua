-- Runs `store`, and tells the transfer workers, Redisson's and ours, when that gave the queue a new head.
-- A wake message that cannot be sent (ACL) costs one poll interval, so it never fails the publish.
-- Returns 'first' (nothing of ours was in the queue, so that no transfer worker of ours may know it), 'head' or
-- 'behind'. Cost O(log N).
-- @include clear
-- @include sweep

local function announce(keys, wake, _, store)
  clear(keys)
  local is_new, known = redis.call('EXISTS', keys.order) == 0, is_tail_known(keys)
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
  forget(keys, fresh) -- where Redisson transfers all, nobody else does
  local place, head = 'behind', redis.call('ZRANGE', keys.due, 0, 0)[1]
  if entries[head] then
    redis.pcall('PUBLISH', wake, redis.call('ZSCORE', keys.due, head))
    place = 'head'
  end
  return is_new and fresh > 0 and 'first' or place
end
