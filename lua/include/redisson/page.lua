-- @include entry names slices

-- Reads messages by their rank in due time, from `start` on, until there are `count` or about `bytes`.
-- Returns entries, due times, priorities, messages (false: the entry has none). Cost O(log N + count).
local function page(keys, start, count, bytes)
  local entries, dues = slices(keys, start, count, bytes)
  return entries, dues, parsed(entries)
end

-- Returns entries and due times in turn, and the length of each entry's message in bytes, 0 when the entry has none.
-- Ends at `count` messages or about `bytes`, as `page` does. Cost O(log N + count).
local function measure(keys, start, count, bytes)
  local found, lengths = {}, {}
  local entries, dues = slices(keys, start, count, bytes)
  for i, entry in ipairs(entries) do
    found[2 * i - 1], found[2 * i] = entry, dues[i]
    lengths[i] = #entry - (start_of(entry) or #entry)
  end
  return found, lengths
end

-- Returns the ids under which messages are stored. Cost O(number of entries).
local function stored_as(keys, entries, bodies)
  return names(keys, entries, bodies)
end

-- Returns the cursor of a member, where a page can end. For an entry: a few bytes, which sort right behind the entry
-- among those of its due time. For a member that is no entry: the member itself, because another may begin like it.
local function cursor_of(entry)
  return start_of(entry) and mark_of(entry) .. string.rep('\255', LENGTH) or entry
end
