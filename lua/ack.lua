-- Removes messages from those that consumers hold.
-- KEYS unacked_index  ZSET  delivery tag -> time of delivery, s since the epoch; kombu's
-- KEYS unacked        HASH  delivery tag -> message, exchange and routing key; kombu's
-- KEYS places         HASH  delivery tag -> where its place is
-- ARGV going_on  NUMBER  how many of the tags, the first ones, keep their places: their tasks go on
-- ARGV tags...
-- Returns {tag, tag, ...} of those that were held no more
-- Atomic: of several callers with the same tag, one at most removes the message.
-- Cost: O(tags log N)
-- @include places

local missing, end_place, settle = {}, places_in(places)
for number, tag in ipairs(tags) do
  local was_held = redis.call('HDEL', unacked, tag) == 1
  local had_place = end_place and number > going_on and end_place(tag)
  if not (was_held or had_place) then
    table.insert(missing, tag)
  end
end
redis.call('ZREM', unacked_index, unpack(tags))
if settle then
  settle()
end
return missing
