-- Reads entries a slice at a time: an entry has its message with it, of which nobody knows how large it is.
-- @include backup

-- How many entries are read first, and at once.
local FIRST, MOST = 8, 64

-- Reads entries, until there are `count` or about `bytes`. fetch: called with how many to skip and how many to read,
-- returns entries and due times in turn. Returns entries, due times, bytes of all.
local function slices(fetch, count, bytes)
  local entries, dues, size, ask = {}, {}, 0, math.min(FIRST, count)
  while ask > 0 and size < bytes do
    local found = fetch(#entries, ask)
    for i = 1, #found, 2 do
      if size < bytes then
        entries[#entries + 1], dues[#dues + 1] = found[i], found[i + 1]
        size = size + #found[i]
      end
    end
    local fit = math.ceil((bytes - size) * #entries / math.max(size, 1))
    ask = #found < 2 * ask and 0 or math.min(fit, count - #entries, MOST)
  end
  return entries, dues
end

-- Returns entries, their due times, priorities and messages (false: there is none).
local function opened(entries, dues)
  local priorities, bodies = {}, {}
  for i, entry in ipairs(entries) do
    bodies[i] = message_of(entry)
    priorities[i] = bodies[i] and priority_of(entry, bodies[i])
  end
  return entries, dues, priorities, bodies
end
