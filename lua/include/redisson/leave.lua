-- How messages leave for the other layout in a conversion.
-- @include names due

-- Returns the ids under which messages were offered. Cost O(1) a message.
local function offered_as(keys, entries, bodies)
  return names(keys, entries, bodies)
end

-- Removes the first messages by due time. Cost O(log N) a message.
local function leave(keys, entries, bodies)
  drop(keys, entries, bodies)
end

-- Returns how many bodies are left once no message waits: 0, because garbage leaves the list with the last message.
local function stranded()
  return 0
end
