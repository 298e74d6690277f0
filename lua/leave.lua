-- Forgets a consumer that holds nothing any more, and gives up its places.
-- KEYS consumers  ZSET  consumer -> end of its lease, ms since the epoch
-- KEYS consumed   HASH  consumer -> what it says of itself, a JSON object
-- KEYS places     HASH  delivery tag -> where its place is
-- ARGV consumer  name
-- Returns 'gone'
-- Atomic: the consumer is known, or its places are free.
-- Cost: O(places)
-- @include places

redis.call('HDEL', consumed, consumer)
leave_places(places, consumer)
redis.call('ZREM', consumers, consumer)
return 'gone'
