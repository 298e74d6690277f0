-- Takes a message that a consumer received before its time out of the unacked messages and into the store.
-- KEYS[1] due            ZSET    message -> due time, ms since the epoch
-- KEYS[2] backup         HASH    id -> message
-- KEYS[3] order          STRING  count of messages marked so far
-- KEYS[4] twins          ZSET    ids of messages stored beside another of the same id
-- KEYS[5] unacked_index  ZSET    delivery tag -> time of delivery (kombu's)
-- KEYS[6] unacked        HASH    delivery tag -> message (kombu's)
-- ARGV[1] wake           channel on which a new head is announced
-- ARGV[2] queue          name, as announced
-- ARGV[3] tag            delivery tag under which the consumer holds the message
-- ARGV[4] id
-- ARGV[5] due_ms         due time, ms since the epoch
-- ARGV[6] priority       0-9
-- ARGV[7] body
-- Returns 'first' | 'head' | 'behind' when the store has it now, 'due' when it is due already (nothing changed)
-- Atomic: the message moves from the unacked messages to the store.
-- Cost: O(log N)
-- @include clock
-- @include wrong_type
-- @include backup
-- @include announce

local keys = { due = KEYS[1], backup = KEYS[2], order = KEYS[3], twins = KEYS[4] }
local unacked_index, unacked = KEYS[5], KEYS[6]
local wake, queue, tag = ARGV[1], ARGV[2], ARGV[3]
local id, due_ms, priority, body = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

local wrong = wrong_stored(keys) or wrong_type({ [unacked_index] = 'zset', [unacked] = 'hash' })
if wrong then
  return wrong
end
if tonumber(due_ms) <= now_ms() then
  return 'due'
end
local place = announce(keys, wake, queue, function()
  put(keys, id, due_ms, priority, body)
end)
redis.call('ZREM', unacked_index, tag)
redis.call('HDEL', unacked, tag)
return place
