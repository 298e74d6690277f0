-- Returns the routings of rows, with false in the place of those of paused queues; their bases; and the numbers of
-- paused queues, but for in-flight lists, each with false behind it. paused: HASH, names as JSON -> since when;
-- flights: how many rows are those of in-flight lists, which come first. Cost O(queues).
local function routings_of(paused, rows, flights)
  local routings, bases, rest = {}, {}, {}
  for number, row in ipairs(rows) do
    routings[number], bases[number] = row.name, row.base
  end
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
  return routings, bases, rest
end

-- Appends values to a list, and returns it. Cost O(values).
local function with(list, values)
  for _, value in ipairs(values) do
    list[#list + 1] = value
  end
  return list
end
