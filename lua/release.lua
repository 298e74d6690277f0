-- Gives leases back, so that another worker can take them at once.
-- KEYS leases...  STRING  name of its holder
-- ARGV name  name of the caller
-- Returns 'released', or 'not_leading' when the caller holds none of the leases
-- Atomic: only the holder gives a lease back.
-- Cost: O(1)

local outcome = 'not_leading'
for _, lease in ipairs(leases) do
  if redis.call('GET', lease) == name then
    redis.call('DEL', lease)
    outcome = 'released'
  end
end
return outcome
