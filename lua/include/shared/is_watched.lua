-- Returns whether it is to be found out who is gone: a message is in hand, a consumer that has subscribed has no
-- subscriber, or Redis refuses to say so. While no message is in hand, a killed consumer may still have one in flight.
-- Returns also what consumers say of themselves, as HGETALL does, unless a message is in hand.
-- channels: how the names of the consumers' channels begin. Cost O(consumers) while nothing is in hand.
local function is_watched(consumed, unacked, channels)
  local abouts = redis.pcall('EXISTS', unacked) == 0 and redis.pcall('HGETALL', consumed)
  if not abouts or abouts.err then
    return true, {}
  end
  local names = {}
  for i = 1, #abouts, 2 do
    if string.find(abouts[i + 1], '"subscribed": true', 1, true) then
      names[#names + 1] = channels .. abouts[i]
    end
  end
  for from = 1, #names, 1000 do
    local found = redis.pcall('PUBSUB', 'NUMSUB', unpack(names, from, math.min(from + 999, #names)))
    for i = 2, #found, 2 do
      if found[i] == 0 then
        return true, abouts
      end
    end
    if found.err then
      return true, abouts
    end
  end
  return false, abouts
end
