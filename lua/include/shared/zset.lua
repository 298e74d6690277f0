-- Places in a ZSET, whose members are sorted by score, and those of one score by their bytes.

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

-- Returns the first member of a score that does not come before some bytes, or nil, and the rank where it is, or would
-- be. Cost O(log N^2), and with few members of the score O(log N).
local function seek(due, due_ms, bytes)
  local low, high = redis.call('ZCOUNT', due, '-inf', '(' .. due_ms), redis.call('ZCOUNT', due, '-inf', due_ms)
  local found
  while low < high do
    local middle = math.floor((low + high) / 2)
    local member = redis.call('ZRANGE', due, middle, middle)[1]
    if precedes(member, bytes) then
      low = middle + 1
    else
      found, high = member, middle
    end
  end
  return found, low
end

-- Returns the member that has this score and begins with `mark`, or nil. Cost as of `seek`.
local function locate(due, due_ms, mark)
  local found = seek(due, due_ms, mark)
  return found and string.sub(found, 1, #mark) == mark and found or nil
end

-- Returns the rank of what follows a member, also when the member is not there any more. Cost as of `seek`.
local function rank_after(due, member, due_ms)
  if redis.call('ZSCORE', due, member) == due_ms then
    return redis.call('ZRANK', due, member) + 1
  end
  local _, rank = seek(due, due_ms, member .. '\0') -- the least bytes behind the member
  return rank
end

-- Returns between which ranks the messages are that are due from `from` on and before `to`: the rank of the first, and
-- the one behind the last. from: ms since the epoch, or -inf; to: the same, or +inf. Cost O(log N).
local function between(due, from, to)
  local first = from == '-inf' and 0 or redis.call('ZCOUNT', due, '-inf', '(' .. from)
  return first, redis.call('ZCOUNT', due, '-inf', '(' .. to)
end
