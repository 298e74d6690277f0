-- How entries leave the backup in Redisson's form.
-- @include sweep
-- @include large

-- How long the list may be for LREM, which goes through all of it; for an entry that is larger than LARGE, as many
-- entries as this share of its bytes, at most LONG: a sweep would read eight times its bytes.
local SHORT, FOR_BYTES, LONG = 100, 1 / 8, 10000

-- How many entries, and bytes, are looked at for each that leaves; the least and the most bytes for all of a call.
local PACE, LEAST, MOST_BYTES = 8, 100000, 500000

local function is_short_for(entry, length)
  return length <= SHORT or #entry > LARGE and length <= math.min(#entry * FOR_BYTES, LONG)
end

-- Removes entries. ids: of their messages. Cost O(log N) an entry.
local function remove_entries(keys, entries, ids)
  local length, left, bytes = redis.call('LLEN', keys.backup), 0, 0
  for _, entry in ipairs(entries) do
    if is_short_for(entry, length) then
      redis.call('LREM', keys.backup, 1, entry)
    else
      left, bytes = left + 1, bytes + #entry
    end
  end
  redis.call('ZREM', keys.due, unpack(entries))
  if redis.call('EXISTS', keys.due) == 0 then
    redis.call('UNLINK', keys.backup, keys.order, keys.twins)
    return
  end
  unindex(keys, entries, ids)
  if left > 0 then
    sweep(keys, PACE * left, math.min(math.max(PACE * bytes, LEAST), MOST_BYTES))
  end
  forget(keys, #entries)
end
