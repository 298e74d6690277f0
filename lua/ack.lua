-- Removes messages from those that consumers hold.
-- KEYS unacked_index  ZSET  delivery tag -> time of delivery, s since the epoch; kombu's
-- KEYS unacked        HASH  delivery tag -> message, exchange and routing key; kombu's
-- ARGV tags...
-- Returns {tag, tag, ...} of those that were held no more
-- Atomic: of several callers with the same tag, one at most removes the message.
-- Cost: O(tags log N)

local missing = {}
for _, tag in ipairs(tags) do
  if redis.call('HDEL', unacked, tag) == 0 then
    table.insert(missing, tag)
  end
end
redis.call('ZREM', unacked_index, unpack(tags))
return missing
