-- Whether one member comes before another of the same score, by their bytes as Redis compares them; Lua's own `<`
-- goes by the locale of the server.
local function precedes(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then
      return a < b
    end
  end
  return #one < #other
end
