-- Counts how long messages waited in a queue for a consumer.
-- KEYS[1] counters  HASH  those of the queue
-- ARGV[1...] grown  pairs of a field and the number by which it grows
-- Returns 'counted'
-- Atomic: a counter grows by all or nothing; repeated after a lost reply, it counts twice.
-- Cost: O(counters)
-- @include counters wrong_type

local counters = KEYS[1]

local wrong = wrong_type({ [counters] = 'hash' })
if wrong then
  return wrong
end
local by = {}
for i = 1, #ARGV, 2 do
  by[ARGV[i]] = tonumber(ARGV[i + 1])
end
count_for_a_while(counters, by)
return 'counted'
