-- Moves a message that a consumer received before its time from the unacked messages into the store.
-- KEYS[1-4] keys  of the queue's delayed messages, see include/*/types.lua
-- KEYS[5] unacked_index  ZSET         delivery tag -> time of delivery; kombu's
-- KEYS[6] unacked        HASH         delivery tag -> message; kombu's
-- ARGV[1] wake      channel on which a new head is announced
-- ARGV[2] queue     name, as announced
-- ARGV[3] expire    ms after which an unused queue expires, 0 for never
-- ARGV[4] tag       delivery tag under which the consumer holds the message; '' when it holds none
-- ARGV[5] id
-- ARGV[6] due_ms    due time, ms since the epoch
-- ARGV[7] priority  0-9
-- ARGV[8] body
-- Returns 'first' | 'head' | 'behind' when the store has the message now; with nothing changed: 'due' when the message
-- is due already, 'gone' when the consumer holds it no more
-- Atomic: the message moves from the unacked messages into the store.
-- Cost: O(log N)
-- @include announce clock lifetime put

local wake, queue, expire, tag = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local id, due_ms, priority, body = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local now = now_ms()

if tonumber(due_ms) <= now then
  return 'due'
end
if tag ~= '' and not redis.call('ZSCORE', unacked_index, tag) then
  return 'gone'
end
local life = life_of(keys, now, expire)
local place = announce(keys, wake, queue, function()
  put(keys, id, due_ms, priority, body)
end)
live_on(keys, life, now)
redis.call('ZREM', unacked_index, tag)
redis.call('HDEL', unacked, tag)
return place
