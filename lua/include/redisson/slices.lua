-- Reads entries a slice at a time: an entry contains its message, whose size is known only after the read.
-- @include budget entry

-- Number of entries in the first slice, and largest number in a slice.
local FIRST = 8
local MOST = 64

-- Reads entries by their rank in due time, from `start` on, until there are `count` or about `bytes`, or it takes
-- long. Returns entries, due times. Cost O(log N + count).
local function slices(keys, start, count, bytes)
  local entries, dues, size, ask, has_time = {}, {}, 0, math.min(FIRST, count), time_budget()
  while ask > 0 and size < bytes do
    local first = start + #entries
    local found = redis.call('ZRANGE', keys.due, first, first + ask - 1, 'WITHSCORES')
    for i = 1, #found, 2 do
      if size < bytes then
        entries[#entries + 1], dues[#dues + 1] = found[i], found[i + 1]
        size = size + #found[i]
      end
    end
    local fit = math.ceil((bytes - size) * #entries / math.max(size, 1))
    ask = (#found < 2 * ask or not has_time(ask)) and 0 or math.min(fit, count - #entries, MOST)
  end
  return entries, dues
end

-- Returns the priorities and the messages of entries (false: the entry has none). Cost O(number of entries).
local function parsed(entries)
  local priorities, bodies = {}, {}
  for i, entry in ipairs(entries) do
    bodies[i] = message_of(entry)
    priorities[i] = bodies[i] and priority_of(entry, bodies[i])
  end
  return priorities, bodies
end
