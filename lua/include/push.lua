-- Pushes messages to the end of their queue's lists where kombu would have put them.
-- ready: list -> bodies; first: where the lists begin in KEYS; expire: ms after which they expire, not above 0 for
-- never. In the order of the priority steps: a consumer that waits is served from the list that was pushed to first.
-- Cost O(number of bodies).
local function push(ready, first, expire)
  for i = first, #KEYS do
    local list, bodies = KEYS[i], ready[KEYS[i]]
    if bodies then
      redis.call('LPUSH', list, unpack(bodies))
      ready[list] = nil -- a priority step may be named twice
      if expire > 0 then
        redis.call('PEXPIRE', list, expire)
      end
    end
  end
end
