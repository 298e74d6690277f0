-- @include lifetime

-- Pushes messages to the end of their queue's lists where kombu would have put them.
-- ready: list -> bodies; first: where the lists begin in KEYS; expire: x-expires in ms, 0 for none. In the order of the
-- priority steps: a consumer that waits is served from the list that was pushed to first. Cost O(number of bodies).
local function push(ready, first, expire)
  for i = first, #KEYS do
    local list, bodies = KEYS[i], ready[KEYS[i]]
    if bodies then
      local left = expire > 0 and redis.call('PTTL', list) or -1
      redis.call('LPUSH', list, unpack(bodies))
      ready[list] = nil -- a priority step may be named twice
      if left ~= -1 then -- what others have put there without an end keeps it from ending
        lengthen(list, expire, left)
      end
    end
  end
end
