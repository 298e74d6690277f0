-- Puts messages of a move that come from a queue in another slot into their queue, once for each name of a move.
-- KEYS[1] due      ZSET         message -> due time, ms since the epoch
-- KEYS[2] bodies   HASH|LIST    bodies of the messages
-- KEYS[3] notes    STRING|HASH  count of messages marked, and more
-- KEYS[4] ids      ZSET|HASH    ids of twins, or index of messages by id
-- KEYS[5] arrived  STRING       is there when the messages of this move have come
-- KEYS[6...] ready LIST        the queue's lists of messages that are ready for a consumer
-- ARGV[1] wake   channel on which a new head is announced
-- ARGV[2] queue  name, as announced
-- ARGV[3...] four a message: id, due time, priority (0-9), body; of one that is ready for a consumer '', '', number of
-- its list, from 0, message
-- Returns 'first' | 'head' | 'behind', or 'repeated' if they have come before
-- Atomic: all messages of the move are in the queue when this returns.
-- Cost: O(log N) a message
-- @include all_from announce clock lifetime put wrong_type

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local arrived, ready = KEYS[5], all_from(KEYS, 6)
local wake, queue, now = ARGV[1], ARGV[2], now_ms()

local wrong = wrong_stored(keys, 6) or wrong_type({ [arrived] = 'string' })
if wrong then
  return wrong
elseif redis.call('EXISTS', arrived) == 1 then
  return 'repeated'
end
local life = life_of(keys, now, 0)
local place = announce(keys, wake, queue, function()
  for i = 3, #ARGV, 4 do
    if ARGV[i + 1] == '' then
      -- The last list, for a caller with fewer priority steps than that of `depart_ready`.
      redis.call('LPUSH', ready[math.min(1 + ARGV[i + 2], #ready)], ARGV[i + 3])
    else
      put(keys, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], true)
    end
  end
end)
live_on(keys, life, now)
redis.call('SET', arrived, 1)
return place
