-- Counts how many messages of a queue come due when.
-- KEYS due  ZSET  message -> due time, ms since the epoch
-- ARGV bounds...  ms since the epoch, or -inf, or inf, ascending
-- Returns for each bound but the last: number of messages due from then on and before the next bound
-- Atomic: all numbers are of one moment.
-- Cost: O(log N) a bound; less where nothing comes due between many bounds

local counts = {}
for i = 1, #bounds - 1 do
  counts[i] = 0
end
local function before(bound)
  return redis.call('ZCOUNT', due, '-inf', '(' .. bound)
end
-- Between two bounds with nothing between them, no other bound is asked about.
local function fill(low, high, before_low, before_high)
  if before_low == before_high then
    return
  elseif high - low == 1 then
    counts[low] = before_high - before_low
    return
  end
  local middle = math.floor((low + high) / 2)
  local before_middle = before(bounds[middle])
  fill(low, middle, before_low, before_middle)
  fill(middle, high, before_middle, before_high)
end
if #bounds > 1 then
  fill(1, #bounds, before(bounds[1]), before(bounds[#bounds]))
end
return counts
