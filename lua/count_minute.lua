-- Counts what has become of messages of a queue: in all, and of some kinds in the present minute.
-- KEYS[1] counters  HASH  counters of the queue, beside which its minutes are kept
-- ARGV[...] two each: a field, of which 'retried', 'failed' and 'dead' have minutes; the number by which it grows
-- Returns nothing
-- Atomic: all numbers are in one minute; repeated after a lost reply, it counts twice.
-- Cost: O(fields)
-- @include clock counters minutes

local now = now_ms()

local by = {}
for i = 1, #ARGV, 2 do
  by[ARGV[i]] = tonumber(ARGV[i + 1])
  count_minute(counters, now, ARGV[i], by[ARGV[i]])
end
count_for_a_while(counters, by)
