-- Gives up places of a consumer that holds nothing any more, and forgets it with the last of them.
-- KEYS consumers  ZSET  consumer -> end of its lease, ms since the epoch
-- KEYS consumed   HASH  consumer -> what it says of itself, a JSON object
-- KEYS places     HASH  delivery tag -> where its place is
-- ARGV consumer  name
-- Returns 'gone', or 'more' if it may have places
-- Atomic: the consumer is known, or its places are free.
-- Cost: O(places)
-- @include places

if leave_places(places, consumer) then
  return 'more'
end
redis.call('HDEL', consumed, consumer)
redis.call('ZREM', consumers, consumer)
return 'gone'
