-- Moves a message that a consumer received before its time from the unacked messages into the store.
-- KEYS keys           of the queue's delayed messages, see include/*/types.lua
-- KEYS unacked_index  ZSET  delivery tag -> time of delivery; kombu's
-- KEYS unacked        HASH  delivery tag -> message; kombu's
-- KEYS places         HASH  delivery tag -> where its place is
-- ARGV wake, queue  channel on which a new head is announced, and the name of the queue there
-- ARGV expire       NUMBER  ms after which an unused queue expires, 0 for never
-- ARGV tag          delivery tag under which the consumer holds the message; '' when it holds none
-- ARGV id
-- ARGV due          due time, ms since the epoch
-- ARGV priority     0-9
-- ARGV body
-- Returns 'first' | 'head' | 'behind' when the store has the message now; with nothing changed: 'due' when the message
-- is due already, 'gone' when the consumer holds it no more
-- Atomic: the message moves from the unacked messages into the store.
-- Cost: O(log N)
-- @include announce clock lifetime places put

local now = now_ms()

if tonumber(due) <= now then
  return 'due'
end
if tag ~= '' and not redis.call('ZSCORE', unacked_index, tag) then
  return 'gone'
end
local life = life_of(keys, now, expire)
-- A full Redis refuses a script whose first write needs memory, and lets later writes pass.
redis.call('ZREM', unacked_index, tag)
redis.call('HDEL', unacked, tag)
local place = announce(keys, wake, queue, function()
  put(keys, id, due, priority, body)
end)
live_on(keys, life, now)
local end_place, settle = places_in(places)
if end_place then
  end_place(tag)
  settle()
end
return place
