-- Whether all entries of the backup list are in the index of ids. Only other clients add entries that are not, and
-- they add them at the tail. So the last entry up to which all are known is noted, by its mark: while it is the tail,
-- there is nothing to look for.
-- @include entry

local function is_tail_known(keys)
  local tail = redis.call('LINDEX', keys.backup, -1)
  return not tail or mark_of(tail) == redis.call('HGET', keys.order, 'tail')
end

-- Notes that all entries are known.
local function know_tail(keys)
  local tail = redis.call('LINDEX', keys.backup, -1)
  if tail then
    redis.call('HSET', keys.order, 'tail', mark_of(tail))
  end
end

-- Forgets the note when it is of one of some entries, which will be elsewhere in the list.
local function lose_tail(keys, entries)
  local known = redis.call('HGET', keys.order, 'tail')
  for _, entry in ipairs(entries) do
    if mark_of(entry) == known then
      redis.call('HDEL', keys.order, 'tail')
    end
  end
end
