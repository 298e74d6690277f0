-- Returns the values of a list from a place on. `unpack` fails for more than 8,000 values. Cost O(values).
local function all_from(list, from)
  local found = {}
  for i = from, #list do
    found[i - from + 1] = list[i]
  end
  return found
end
