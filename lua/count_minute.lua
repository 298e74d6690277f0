-- Counts what has become of messages of a queue, in the present minute.
-- KEYS[1] counters  HASH  counters of the queue, beside which its minutes are kept
-- ARGV[...] two each: 'retried', 'failed' or 'dead'; a number
-- Returns nothing
-- Atomic: all numbers are in one minute.
-- Cost: O(kinds)
-- @include clock minutes

local counters, now = KEYS[1], now_ms()

for i = 1, #ARGV, 2 do
  count_minute(counters, now, ARGV[i], tonumber(ARGV[i + 1]))
end
