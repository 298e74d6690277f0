-- Whether the index of ids has all entries of the list. Only other clients add entries that the index lacks, and they
-- add them at the tail. So the note `tail` has the mark of the last entry up to which all entries are indexed: while
-- that entry is the tail of the list, nothing is missing.
-- @include entry

-- The entries that this call has added, as keys of a table; their number; the mark of the latest.
local added = { entries = {}, count = 0, tail = nil }

-- Whether the index of ids has all entries. Cost O(1).
local function is_all_indexed(keys)
  local tail = redis.call('LINDEX', keys.bodies, -1)
  return not tail or mark_of(tail) == redis.call('HGET', keys.notes, 'tail')
end

-- Notes that the index of ids has all entries. Cost O(1).
local function note_all_indexed(keys)
  local tail = redis.call('LINDEX', keys.bodies, -1)
  if tail then
    redis.call('HSET', keys.notes, 'tail', mark_of(tail))
  end
end

-- Removes the notes `tail` and `sought` if they name one of these entries, which move to the tail or leave the list.
-- Cost O(number of entries).
local function lose_watermarks(keys, entries)
  local noted = redis.call('HMGET', keys.notes, 'tail', 'sought')
  for _, entry in ipairs(entries) do
    for i, name in ipairs({ 'tail', 'sought' }) do
      if mark_of(entry) == noted[i] then
        redis.call('HDEL', keys.notes, name)
      end
    end
  end
end
