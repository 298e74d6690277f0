-- Returns how many places of a queue each key has. Cost O(places).
local function places_of(places, base)
  local running = {}
  for _, place in ipairs(redis.call('HVALS', places)) do
    local of, name = string.match(place, '^(.-)%z%d(.*)$')
    if of == base then
      running[name] = (running[name] or 0) + 1
    end
  end
  return running
end
