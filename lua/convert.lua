-- Moves delayed messages of a queue from the other layout into this one, the next due first.
-- KEYS[1-4] keys  of the queue's delayed messages, see include/*/types.lua
-- KEYS[5-8] from  of its messages in the other layout
-- ARGV[1] wake   channel on which a new head is announced
-- ARGV[2] queue  name, as announced
-- ARGV[3] count  how many messages to move at most
-- ARGV[4] bytes  about how many bytes to move at most
-- Returns {number moved, number without a body, number left, number of bodies left that belong to no message,
-- 'first' | 'head' | 'behind'}; messages without a body are removed
-- Atomic: puts first, removes after; cut short, it may repeat a message and never lose one.
-- Cost: O(log N) a message
-- @include announce clock lifetime put_all
-- @other page leave

local wake, queue, count, bytes = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local now = now_ms()
local life = longer(life_of(keys, now, 0), life_of(from, now, 0))
local members, dues, priorities, bodies = other.page(from, 0, count, bytes)
local ids, rows, lost = other.offered_as(from, members, bodies), {}, 0
for i, body in ipairs(bodies) do
  if body then
    rows[#rows + 1] = { id = ids[i], due = dues[i], priority = priorities[i], body = body }
  else
    lost = lost + 1
  end
end
local place = announce(keys, wake, queue, function()
  put_all(keys, rows, true)
end)
if #members > 0 then
  live_on(keys, life, now)
  if life.left == -1 then
    persist(keys)
  end
  other.leave(from, members, bodies)
end
return { #rows, lost, redis.call('ZCARD', from.due), other.stranded(from), place }
