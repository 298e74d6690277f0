-- Ranks in a ZSET. Redis sorts its members by score, and members of one score by their bytes.

-- Whether one member comes before another of the same score. Redis compares their bytes; Lua's own `<` would go by the
-- locale of the server.
local function precedes(one, two)
  for i = 1, math.min(#one, #two) do
    local a, b = string.byte(one, i), string.byte(two, i)
    if a ~= b then
      return a < b
    end
  end
  return #one < #two
end

-- Returns the rank of the first member of a score, and the rank behind the last. Cost O(log N).
local function ranks_of(due, due_ms)
  return redis.call('ZCOUNT', due, '-inf', '(' .. due_ms), redis.call('ZCOUNT', due, '-inf', due_ms)
end

-- Returns the member that has this score and begins with `mark`, or nil. Cost O(log N * log N), and with few members of
-- the score O(log N).
local function locate(due, due_ms, mark)
  local low, high = ranks_of(due, due_ms)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local member = redis.call('ZRANGE', due, middle, middle)[1]
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

-- Returns the rank behind a member, or behind the place where it was if it has left. Cost O(log N * log N).
local function rank_after(due, member, due_ms)
  if redis.call('ZSCORE', due, member) == due_ms then
    return redis.call('ZRANK', due, member) + 1
  end
  local low, high = ranks_of(due, due_ms)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if precedes(member, redis.call('ZRANGE', due, middle, middle)[1]) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- Returns the rank of the first message that is due at `from` or later and before `to`, and the rank behind the last.
-- from: ms since the epoch, or -inf; to: ms since the epoch, or inf, which no message is behind. Cost O(log N).
local function between(due, from, to)
  local first = from == '-inf' and 0 or redis.call('ZCOUNT', due, '-inf', '(' .. from)
  return first, redis.call('ZCOUNT', due, '-inf', (to == 'inf' and '' or '(') .. to)
end
