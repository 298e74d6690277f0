-- Gives a lease back, so that another may have it at once.
-- KEYS[1] lease  STRING  name of who holds it
-- ARGV[1] name   of who gives it back
-- Returns 'released' or 'not_leading'
-- Atomic: only the holder gives it back.
-- Cost: O(1)

local lease = KEYS[1]
local name = ARGV[1]

if redis.call('GET', lease) ~= name then
  return 'not_leading'
end
redis.call('DEL', lease)
return 'released'
