-- Whether one member comes before another of the same score, by their bytes as Redis compares them; Lua's own `<`
-- goes by the locale of the server.
local function precedes(one, two)
  for i = 1, math.min(#one, #two) do
    local a, b = string.byte(one, i), string.byte(two, i)
    if a ~= b then
      return a < b
    end
  end
  return #one < #two
end
