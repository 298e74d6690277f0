-- Checks index entries of the default backup.
-- @include marks

-- Returns the word for an entry, and with `mend` mends it: 'sound', 'gone' (there is none), 'lost' (no body has its id;
-- removed) or 'stale' (the body's entry is another, which gets the due time if it has none). Cost O(log N).
local function check_entry(keys, member, mend)
  local score = redis.call('ZSCORE', keys.due, member)
  if not score then
    return 'gone'
  end
  local id = id_of(member)
  local value = redis.call('HGET', keys.backup, id)
  if not value then
    if mend then
      redis.call('ZREM', keys.due, member)
      redis.call('ZREM', keys.twins, id)
    end
    return 'lost'
  elseif member_of(id, value) ~= member then
    if mend then
      redis.call('ZADD', keys.due, 'NX', score, member_of(id, value))
      redis.call('ZREM', keys.due, member)
    end
    return 'stale'
  end
  return 'sound'
end
