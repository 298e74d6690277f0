-- Checks entries of the backup in Redisson's form.
-- @include indexed
-- @include unindex
-- @include tail

-- Returns the word for an entry, and with `mend` mends it: 'sound', 'gone' (there is none), 'lost' (no message is in
-- it; removed), 'misordered' (the count of marked messages is behind it) or 'unnamed' (it cannot be found by its id).
-- One of another client without a record is sound while somebody is yet to look for such. Cost O(log N).
local function check_entry(keys, entry, mend)
  local due = redis.call('ZSCORE', keys.due, entry)
  local message = due and message_of(entry)
  if not due then
    return 'gone'
  end
  local id = names(keys, { entry }, { message })[1]
  if not message then
    if mend then
      redis.call('ZREM', keys.due, entry)
      unindex(keys, { entry }, { id })
    end
    return 'lost'
  end
  local state, order = 'sound', is_ours(entry) and struct.unpack('>I4', entry, 2) or 0
  if order > (tonumber(redis.call('HGET', keys.order, 'order') or 0) or 0) then
    state = 'misordered'
    if mend then
      redis.call('HSET', keys.order, 'order', string.format('%.0f', order))
    end
  end
  local is_known, others = is_indexed(keys, id, due, entry)
  if not is_known and (is_ours(entry) or is_tail_known(keys)) then
    state = 'unnamed'
    if mend then
      index(keys, id, others, due, entry, message)
    end
  end
  return state
end
