-- Puts foreign entries, those of other clients, into the index of ids.
-- @include entry index_watermark names records slices

-- Indexes the foreign ones of some entries that the index lacks. Returns how many. Cost O(number of entries).
local function index_foreign(keys, entries, dues, bodies)
  local count = 0
  for i, entry in ipairs(entries) do
    if dues[i] and bodies[i] and not is_ours(entry) then
      local id = id_of_foreign(entry, bodies[i])
      local is_known, others = is_indexed(keys, id, dues[i], entry)
      if not is_known then
        index(keys, id, others, dues[i], entry, bodies[i])
        count = count + 1
      end
    end
  end
  return count
end

-- Indexes the foreign entries from the list's tail to the entry with this mark, if that is among the last `count` or
-- about `bytes`. Then notes that all entries are indexed, and returns how many it added; else returns nil.
-- Cost O(count).
local function index_tail(keys, mark, count, bytes)
  local entries, size, is_reached = {}, 0, false
  while not is_reached and #entries < count and size < bytes do
    local found = redis.call('LRANGE', keys.bodies, -#entries - FIRST, -#entries - 1)
    for i = #found, 1, -1 do
      is_reached = is_reached or mark_of(found[i]) == mark
      if not is_reached then
        entries[#entries + 1] = found[i]
        size = size + #found[i]
      end
    end
    is_reached = is_reached or #found < FIRST
  end
  if not is_reached then
    return nil
  end
  local dues = #entries > 0 and redis.call('ZMSCORE', keys.due, unpack(entries)) or {}
  local bodies = {}
  for i, entry in ipairs(entries) do
    bodies[i] = message_of(entry)
  end
  local indexed = index_foreign(keys, entries, dues, bodies)
  note_all_indexed(keys)
  return indexed
end
