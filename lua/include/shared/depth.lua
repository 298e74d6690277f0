-- How deep a queue is to which a bulk job sends.

-- Returns how many messages are in a queue, delayed ones among them. Cost O(1).
local function depth_of(to)
  local found, counted = redis.call('ZCARD', to.keys.due), {}
  for i = to.first_list, #KEYS do
    if not counted[KEYS[i]] then -- a priority step may be named twice
      counted[KEYS[i]] = true
      found = found + redis.call('LLEN', KEYS[i])
    end
  end
  return found
end
