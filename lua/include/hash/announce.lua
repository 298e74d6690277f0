-- @include wake

-- Runs `store`. If the queue has a new head then, announces it to the leading transfer worker and its standbys.
-- Returns 'first' (the queue was empty), 'head' or 'behind'. Cost O(log N).
local function announce(keys, wake, queue, store)
  local before = redis.call('ZRANGE', keys.due, 0, 0, 'WITHSCORES')
  store()
  local after = redis.call('ZRANGE', keys.due, 0, 0, 'WITHSCORES')
  if after[2] == nil or (before[2] and tonumber(before[2]) <= tonumber(after[2])) then
    return 'behind'
  end
  wake_up(wake, after[2], queue)
  return before[2] and 'head' or 'first'
end
