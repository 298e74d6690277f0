-- Moves delayed messages of a queue from the other layout into this one, the next due first.
-- KEYS[1] due     ZSET         message -> due time, ms since the epoch
-- KEYS[2] bodies  HASH|LIST    bodies of the messages
-- KEYS[3] notes   STRING|HASH  count of messages marked, and more
-- KEYS[4] ids     ZSET|HASH    ids of duplicates, or index of messages by id
-- KEYS[5] due     ZSET         from here on the keys of the other layout
-- KEYS[6] bodies  LIST|HASH
-- KEYS[7] notes   HASH|STRING
-- KEYS[8] ids     HASH|ZSET
-- ARGV[1] wake   channel on which a new head is announced
-- ARGV[2] queue  name, as announced
-- ARGV[3] count  how many messages to move at most
-- ARGV[4] bytes  about how many bytes to move at most
-- Returns {number moved, number without a body, number left, number of bodies left that belong to no message,
-- 'first' | 'head' | 'behind'}; messages without a body are removed
-- Atomic: puts first, removes after; cut short, it may repeat a message and never lose one.
-- Cost: O(log N) a message
-- @include announce clock lifetime put wrong_type
-- @other wrong_type page leave

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local from = { due = KEYS[5], bodies = KEYS[6], notes = KEYS[7], ids = KEYS[8] }
local wake, queue, count, bytes = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local wrong = wrong_stored(keys) or other.wrong_stored(from)
if wrong then
  return wrong
end

local now = now_ms()
local life = longer(life_of(keys, now, 0), life_of(from, now, 0))
local members, dues, priorities, bodies = other.page(from, 0, count, bytes)
local moved, lost = 0, 0
local place = announce(keys, wake, queue, function()
  local ids = other.offered_as(from, members, bodies)
  for i, body in ipairs(bodies) do
    if body then
      put(keys, ids[i], dues[i], priorities[i], body, true)
      moved = moved + 1
    else
      lost = lost + 1
    end
  end
end)
if #members > 0 then
  live_on(keys, life, now)
  if life.left == -1 then
    persist(keys)
  end
  other.leave(from, members, bodies)
end
return { moved, lost, redis.call('ZCARD', from.due), other.stranded(from), place }
