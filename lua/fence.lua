-- Fences consumers off whose lease has ended: from now on they cannot renew it, and fetch nothing.
-- KEYS consumers  ZSET  consumer -> end of its lease, ms since the epoch; 0 once it is fenced off
-- ARGV names...  of the consumers
-- Returns {name, name, ...} of those that are fenced off, now or before
-- Atomic: a consumer renews its lease, or is fenced off.
-- Cost: O(consumers log N)
-- @include clock

local now = now_ms()

local fenced = {}
for _, consumer in ipairs(names) do
  local ends = redis.call('ZSCORE', consumers, consumer)
  if ends and tonumber(ends) <= now then
    -- A full Redis refuses a script whose first write needs memory, and lets later writes pass.
    redis.call('ZREM', consumers, consumer)
    redis.call('ZADD', consumers, 0, consumer)
    table.insert(fenced, consumer)
  end
end
return fenced
