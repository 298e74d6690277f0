-- Returns how many places of a queue each key has. Cost O(places).
local function places_of(places, base)
  local running = {}
  local taken = redis.call('HGETALL', places)
  for place = 2, #taken, 2 do
    local of, name = string.match(taken[place], '^(.-)%z%d(.*)$')
    if of == base then
      running[name] = (running[name] or 0) + 1
    end
  end
  return running
end
