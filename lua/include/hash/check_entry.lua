-- @include marks

-- Checks an index entry, and with `mend` mends it. Returns 'sound'; 'gone': there is no such entry; 'lost': no body has
-- the entry's id, and the entry is removed; 'unnamed': the body belongs to another entry, which gets the due time if it
-- has none, and this entry is removed. Cost O(log N).
local function check_entry(keys, member, mend)
  local due_ms = redis.call('ZSCORE', keys.due, member)
  if not due_ms then
    return 'gone'
  end
  local id = id_of(member)
  local value = redis.call('HGET', keys.bodies, id)
  if not value then
    if mend then
      redis.call('ZREM', keys.due, member)
      redis.call('ZREM', keys.ids, id)
    end
    return 'lost'
  elseif member_of(id, value) ~= member then
    if mend then
      redis.call('ZADD', keys.due, 'NX', due_ms, member_of(id, value))
      redis.call('ZREM', keys.due, member)
    end
    return 'unnamed'
  end
  return 'sound'
end
