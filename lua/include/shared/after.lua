-- @include precedes

-- Returns the rank of what follows a member in a ZSET, also when the member is not there any more. Cost O(log N^2).
local function rank_after(key, member, score)
  if redis.call('ZSCORE', key, member) == score then
    return redis.call('ZRANK', key, member) + 1
  end
  local low, high = redis.call('ZCOUNT', key, '-inf', '(' .. score), redis.call('ZCOUNT', key, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if precedes(member, redis.call('ZRANGE', key, middle, middle)[1]) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end
