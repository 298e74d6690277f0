-- Gives up places of consumers that hold nothing any more, and forgets each with the last of its own.
-- KEYS consumers  ZSET  consumer -> end of its lease, ms since the epoch
-- KEYS consumed   HASH  consumer -> what it says of itself, a JSON object
-- KEYS places     HASH  delivery tag -> where its place is
-- ARGV names...  of the consumers
-- Returns {name, name, ...} of those that still have places
-- Atomic: a consumer is known, or its places are free.
-- Cost: O(places + consumers log N)
-- @include leave_places

local more, left = leave_places(places, names), {}
for _, consumer in ipairs(names) do
  if more[consumer] then
    table.insert(left, consumer)
  else
    redis.call('HDEL', consumed, consumer)
    redis.call('ZREM', consumers, consumer)
  end
end
return left
