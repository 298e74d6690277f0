-- Puts false in the place of the routings of paused queues. paused: HASH, names as JSON -> since when; flights: how
-- many routings are those of in-flight lists, which come first. Returns the routings; and the numbers of paused queues,
-- but for in-flight lists, each with false behind it. Cost O(queues).
local function routings_of(paused, routings, flights)
  local rest = {}
  if redis.call('EXISTS', paused) == 1 then
    for number, routing in ipairs(routings) do
      if redis.call('HMGET', paused, (string.gsub(routing, '^-', '')))[1] then
        routings[number] = false
        if number > flights then
          rest[#rest + 1], rest[#rest + 2] = number, false
        end
      end
    end
  end
  return routings, rest
end

-- Appends values to a list, and returns it. Cost O(values).
local function with(list, values)
  for _, value in ipairs(values) do
    list[#list + 1] = value
  end
  return list
end
