-- @include forget index_watermark remove wake

-- Runs `store`. If the queue has a new head then, announces it to the transfer workers, Redisson's and ours.
-- Returns 'first' (the queue had no notes, so perhaps none of our transfer workers knows it), 'head' or 'behind'.
-- Cost O(log N).
local function announce(keys, wake, _, store)
  clear(keys)
  local is_new, was_indexed = redis.call('EXISTS', keys.notes) == 0, is_all_indexed(keys)
  store()
  if was_indexed and added.tail then
    redis.call('HSET', keys.notes, 'tail', added.tail)
  end
  forget(keys, added.count) -- where Redisson transfers all messages, no removal of ours calls this
  local place, head = 'behind', redis.call('ZRANGE', keys.due, 0, 0)[1]
  if added.entries[head] then
    wake_up(wake, redis.call('ZSCORE', keys.due, head))
    place = 'head'
  end
  return is_new and added.count > 0 and 'first' or place
end
