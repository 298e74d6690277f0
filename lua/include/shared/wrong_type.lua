-- @include types

-- Finds a key of another type than expected. A script calls this before its first write, so that it does not stop half
-- way: Redis does not roll back. expected: key -> type.
-- Returns an error reply that names the key, or nil. Cost O(1) a key.
local function wrong_type(expected)
  for key, kept in pairs(expected) do
    local found = redis.call('TYPE', key).ok
    if found ~= 'none' and found ~= kept then
      return redis.error_reply(
        'WRONGTYPE key ' .. key .. ' holds a ' .. found .. ', kombu-delayq keeps a ' .. kept .. ' there'
      )
    end
  end
end

-- Checks the keys of a queue, given by role, and, with `first_list`, the lists in KEYS from that number on. Returns the
-- reply of `wrong_type`.
local function wrong_stored(keys, first_list)
  local expected = {}
  for role, key in pairs(keys) do
    expected[key] = TYPES[role]
  end
  for i = first_list or #KEYS + 1, #KEYS do
    expected[KEYS[i]] = 'list'
  end
  return wrong_type(expected)
end
