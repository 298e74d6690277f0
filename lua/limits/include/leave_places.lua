-- @include places

-- Most places that one call gives up.
local LEFT_AT_ONCE = 100

-- Gives up places of tags of consumers. Returns a set of those that have more. Cost O(places).
local function leave_places(places, consumers)
  local end_place, settle = places_in(places)
  local count, leaves, more, taken = 0, {}, {}, end_place and redis.call('HGETALL', places) or {}
  for _, consumer in ipairs(consumers) do
    leaves[consumer] = true
  end
  for place = 1, #taken, 2 do
    local consumer = string.match(taken[place], '^(.*)%.')
    if leaves[consumer] and count < LEFT_AT_ONCE then
      end_place(taken[place])
      count = count + 1
    elseif leaves[consumer] then
      more[consumer] = true
    end
  end
  if settle then
    settle()
  end
  return more
end
