-- What a conversion takes away from the backup in Redisson's form.
-- @include take

-- Returns under which ids messages were offered. Cost O(1) a message.
local function offered_as(keys, entries, bodies)
  return names(keys, entries, bodies)
end

-- Removes the first messages by due time. Cost O(log N) a message.
local function leave(keys, entries, bodies)
  drop(keys, entries, bodies)
end

-- Returns how many bodies are left when no message is: what is in the list alone is garbage, which is gone by then.
local function stranded()
  return 0
end
