-- Asks whether a transfer worker has to find out which consumers are gone.
-- KEYS consumed  HASH  consumer -> what it says of itself, a JSON object
-- KEYS unacked   HASH  delivery tag -> message in hand; kombu's
-- ARGV channels  how the names of the consumers' channels begin
-- Returns 1 or 0
-- Atomic: reads only.
-- Cost: O(consumers)
-- @unchecked
-- @include is_watched

return is_watched(consumed, unacked, channels) and 1 or 0
