-- @include lifetime

-- Values that one command gets: Lua cannot unpack more than 8,000.
local PUSHED = 4000

-- Pushes messages to the end of their queue's lists where kombu would have put them, list by list in the order of the
-- priority steps: Redis serves a consumer that waits from the first of these lists.
-- messages: list -> bodies; lists: those of the queue; expire: x-expires in ms, 0 for none. Cost O(number of bodies).
local function push(messages, lists, expire)
  for _, ready in ipairs(lists) do
    local bodies = messages[ready]
    if bodies then
      local left = expire > 0 and redis.call('PTTL', ready) or -1
      for first = 1, #bodies, PUSHED do
        redis.call('LPUSH', ready, unpack(bodies, first, math.min(first + PUSHED - 1, #bodies)))
      end
      messages[ready] = nil -- a priority step may be named twice
      if left ~= -1 then -- a list that others have made without a TTL gets none
        lengthen(ready, expire, left)
      end
    end
  end
end
