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

-- Forgets what is noted of the tail, as it was known (tail) or when a search for other clients' messages began
-- (sought), where it is one of some entries, which will be elsewhere in the list.
local function lose_tail(keys, entries)
  local noted = redis.call('HMGET', keys.order, 'tail', 'sought')
  for _, entry in ipairs(entries) do
    for i, name in ipairs({ 'tail', 'sought' }) do
      if mark_of(entry) == noted[i] then
        redis.call('HDEL', keys.order, name)
      end
    end
  end
end
