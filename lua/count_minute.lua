-- Counts what has become of messages of a queue: in all, and of some kinds in the present minute.
-- KEYS counters  HASH  counters of the queue, beside which its minutes are kept
-- ARGV grown...  {field, by}  'retried', 'failed' and 'dead' have minutes, too; by: how much the field grows
-- Returns nothing
-- Atomic: all numbers are in one minute; repeated after a lost reply, it counts twice.
-- Cost: O(fields)
-- @include clock counters minutes

local now = now_ms()

local by = {}
for _, one in ipairs(grown) do
  by[one.field] = tonumber(one.by)
  count_minute(counters, now, one.field, by[one.field])
end
count_for_a_while(counters, by)
