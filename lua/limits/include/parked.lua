-- @include key_turn member sub_queue

-- How many keys are looked at, those whose turn it is.
local LOOKED_AT = 10

-- Returns the number of messages in the sub-queues of a queue, how many of them may not go now, and those that go next
-- of some keys. Cost O(log N).
local function parked_in(base)
  local count = redis.call('ZCARD', base .. ':parked')
  if count == 0 then
    return 0, 0, {}
  end
  local sub, next_ones = sub_queues(base, 0), {}
  for _, name in ipairs(redis.call('ZRANGE', base .. ':turns', 0, LOOKED_AT - 1)) do
    local member = next_in(sub, name, 1)[1]
    next_ones[#next_ones + 1] = member and message_in(name, member)
  end
  return count, math.max(0, count - sub.may), next_ones
end
