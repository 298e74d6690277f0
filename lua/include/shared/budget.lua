-- @include clock

-- After how many ms a call leaves the rest to the next, so that others have their turn, and how many messages it takes
-- in any case. Memory that nobody has touched for long may take a hundred times as long as it does otherwise.
local LONGEST, AT_LEAST = 2, 16

-- Returns what tells, of how many more messages a call has taken, whether it has time for others.
local function time_budget()
  local begun, in_any_case = running_ms(), AT_LEAST
  return function(taken)
    in_any_case = in_any_case - taken
    return in_any_case > 0 or running_ms() - begun <= LONGEST
  end
end
