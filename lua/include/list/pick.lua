-- Messages that leave out of the order of their due times.
-- @include entry page slices take zset

-- Reads the priorities of messages by their rank in due time, from `start` on, until there are `count` or about
-- `bytes`. Returns entries, due times, priorities. Cost O(log N + count).
local function priorities_at(keys, start, count, bytes)
  local entries, dues, priorities = page(keys, start, count, bytes)
  for i = 1, #entries do
    priorities[i] = priorities[i] or '0'
  end
  return entries, dues, priorities
end

-- Returns a short key under which an index may have an entry.
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
