-- Moves delayed messages of a queue from the other form of backup into this one, those that are due first.
-- KEYS[1] due     ZSET    message -> due time, ms since the epoch
-- KEYS[2] backup  HASH    id -> message
-- KEYS[3] order   STRING  count of messages marked so far
-- KEYS[4] twins   ZSET    ids of messages stored beside another of the same id
-- KEYS[5] due     ZSET    from here on the keys of the other form: entry -> due time
-- KEYS[6] backup  LIST    entries, and some that have left
-- KEYS[7] order   HASH    notes
-- KEYS[8] twins   HASH    id -> where its messages are
-- ARGV[1] wake    channel on which a new head is announced
-- ARGV[2] queue   name, as announced
-- ARGV[3] count   most messages to move
-- ARGV[4] bytes   about the most bytes to move
-- Returns {number moved, number without a body, number left, bodies left that no message belongs to,
-- 'first' | 'head' | 'behind'}; what has no body is removed
-- Atomic: puts first, removes after; cut short, it may repeat a message and never lose one.
-- Cost: O(log N) a message
-- @include wrong_type
-- @include backup
-- @include announce
-- @include clock
-- @include lifetime
-- @other wrong_type page leave

local keys = { due = KEYS[1], backup = KEYS[2], order = KEYS[3], twins = KEYS[4] }
local from = { due = KEYS[5], backup = KEYS[6], order = KEYS[7], twins = KEYS[8] }
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
