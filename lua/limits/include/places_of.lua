-- Returns how many places of a queue each key has. Cost O(places).
local function places_of(places, base)
  local running, of_queue = {}, base .. '\0'
  local taken = redis.call('HGETALL', places)
  for place = 2, #taken, 2 do
    if string.sub(taken[place], 1, #of_queue) == of_queue then
      local name = string.sub(taken[place], #of_queue + 2)
      running[name] = (running[name] or 0) + 1
    end
  end
  return running
end
