-- How deep a queue is to which a bulk job sends.

-- Returns how many messages are in a queue, delayed ones among them. Cost O(1).
local function depth_of(to)
  local found, counted = redis.call('ZCARD', to.keys.due), {}
  for _, list in ipairs(to.ready) do
    if not counted[list] then -- a priority step may be named twice
      counted[list] = true
      found = found + redis.call('LLEN', list)
    end
  end
  return found
end
