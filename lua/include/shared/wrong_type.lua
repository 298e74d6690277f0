-- Finds a key of another type than expected. The loader lets a script call this before its first write, so that it does
-- not stop half way: Redis does not roll back. expected: key -> type.
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
