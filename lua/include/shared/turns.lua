-- Serves numbers from 1 to `last` in turns, until none of them has anything left. serve: function of a number and a
-- limit, which serves up to so many and returns how many.
local function in_turns(last, limit, serve)
  local open, turn = {}, 1
  for number = 1, last do
    open[number] = number
  end
  while #open > 0 do
    if turn > #open then
      turn = 1
    end
    if serve(open[turn], limit) == limit then
      turn = turn + 1
    else
      table.remove(open, turn)
    end
  end
end
