-- Pages of the backup in Redisson's form.
-- @include slices

local function by_rank(keys, start)
  return function(skip, count)
    return redis.call('ZRANGE', keys.due, start + skip, start + skip + count - 1, 'WITHSCORES')
  end
end

-- Reads messages by their rank in due time, from `start` on, until there are `count` or about `bytes`. Returns as
-- `opened`.
-- Cost O(log N + count).
local function page(keys, start, count, bytes)
  return opened(slices(by_rank(keys, start), count, bytes))
end

-- Returns entries and due times in turn, as many as `page` would return, and the bytes of the message in each, 0 where
-- there is none. Cost O(log N + count).
local function measure(keys, start, count, bytes)
  local found, lengths = {}, {}
  local entries, dues = slices(by_rank(keys, start), count, bytes)
  for i, entry in ipairs(entries) do
    found[2 * i - 1], found[2 * i] = entry, dues[i]
    lengths[i] = #entry - (start_of(entry) or #entry)
  end
  return found, lengths
end

-- Returns what stands for an entry where a page ends: less than the whole, and behind it among those of its due time.
-- Of what is no entry nobody knows with which bytes others begin.
local function cursor_of(entry)
  return start_of(entry) and mark_of(entry) .. string.rep('\255', LENGTH) or entry
end
