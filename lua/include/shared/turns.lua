-- Serves numbers from 1 to `last` in turns, until none of them has anything left. serve: function of a number and a
-- limit, which serves up to so many and returns how many, or nil to end all turns. Cost O(last + turns).
local function in_turns(last, limit, serve)
  local open
  repeat
    local left = {}
    for i = 1, open and #open or last do
      local number = open and open[i] or i
      local served = serve(number, limit)
      if not served then
        return
      elseif served == limit then
        left[#left + 1] = number
      end
    end
    open = left
  until #open == 0
end
