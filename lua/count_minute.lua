-- Counts what has become of messages of a queue, in the present minute and in all.
-- KEYS[1] counters  HASH  counters of the queue, beside which its minutes are kept
-- ARGV[...] two each: 'retried', 'failed' or 'dead'; a number
-- Returns nothing
-- Atomic: all numbers are in one minute.
-- Cost: O(kinds)
-- @include clock counters minutes

local counters, now = KEYS[1], now_ms()

local by = {}
for i = 1, #ARGV, 2 do
  by[ARGV[i]] = tonumber(ARGV[i + 1])
  count_minute(counters, now, ARGV[i], by[ARGV[i]])
end
count_for_a_while(counters, by)
