-- Messages that leave out of the order of their due times.
-- @include entry slices due zset

-- Returns a short key by which an entry is found again.
local function key_of(entry)
  return mark_of(entry)
end

-- Returns the entry with this key and due time, if it waits and is due, else nil. Cost O(log N * log N).
local function due_member(keys, key, due_ms, now)
  return tonumber(due_ms) <= now and locate(keys.due, due_ms, key) or nil
end

-- Reads the messages of entries (false: the entry has none). Returns bodies, priorities, bytes of all. Cost O(entries).
local function read_picked(_, entries)
  local priorities, bodies = parsed(entries)
  local size = 0
  for _, entry in ipairs(entries) do
    size = size + #entry
  end
  return bodies, priorities, size
end

-- Removes entries, whatever their due times. Cost O(log N) a message.
local function pull(keys, entries, bodies)
  drop(keys, entries, bodies)
end
