-- @include precedes

-- Returns the member of a ZSET that has this score and begins with `mark`, or nil. Members of one score are sorted by
-- their bytes. Cost O(log N^2), and with few members of the score O(log N).
local function locate(key, due, mark)
  local low, high = redis.call('ZCOUNT', key, '-inf', '(' .. due), redis.call('ZCOUNT', key, '-inf', due)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local member = redis.call('ZRANGE', key, middle, middle)[1]
    local begins = string.sub(member, 1, #mark)
    if begins == mark then
      return member
    elseif precedes(mark, begins) then
      high = middle
    else
      low = middle + 1
    end
  end
  return nil
end
