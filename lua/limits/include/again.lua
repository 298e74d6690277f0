-- @include key_turn

-- Consumers that wait for the end of a rest ask so long after one another, in ms, none later than LONGEST_MS. One that
-- waits to be woken asks after IDLE_MS all the same.
local APART_MS, LONGEST_MS, IDLE_MS = 5, 1000, 10000

-- Returns in how many ms a consumer asks again for messages of a queue; nil for not before something happens. may_take:
-- whether it would take one now; otherwise another one is woken for what may go. Cost O(log N).
local function again_in(sub, to, may_take)
  local is_idle = may_take and to.consumer ~= ''
  redis.call(is_idle and 'SADD' or 'SREM', sub.base .. ':idle', to.channel)
  if not is_idle and redis.call('ZCARD', sub.base .. ':turns') > 0 then
    wake_idle(sub)
  end
  local first = redis.call('ZRANGE', sub.base .. ':rests', 0, 0, 'WITHSCORES')[2]
  if sub.has_more then
    return 0
  elseif is_idle and first then
    sub.asked = math.max(tonumber(first), sub.asked + APART_MS)
    return math.min(sub.asked - to.now, LONGEST_MS)
  end
  return is_idle and IDLE_MS or nil
end
