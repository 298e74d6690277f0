-- Moves delayed messages of a queue from the other layout into this one, the next due first.
-- KEYS keys    of the queue's delayed messages, see include/*/types.lua
-- KEYS others  of its messages in the other layout
-- ARGV wake, queue       channel on which a new head is announced, and the name of the queue there
-- ARGV count, max_bytes  NUMBER  how many messages, and about how many bytes, to move at most
-- Returns {number moved, number without a body, number left, number of bodies left that belong to no message,
-- 'first' | 'head' | 'behind'}; messages without a body are removed
-- Atomic: puts first, removes after; cut short, it may repeat a message and never lose one.
-- Cost: O(log N) a message
-- @include announce clock lifetime put_all
-- @other page leave

local now = now_ms()
local life = longer(life_of(keys, now, 0), life_of(others, now, 0))
local members, dues, priorities, bodies = other.page(others, 0, count, max_bytes)
local ids, rows, lost = other.offered_as(others, members, bodies), {}, 0
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
  other.leave(others, members, bodies)
end
return { #rows, lost, redis.call('ZCARD', others.due), other.stranded(others), place }
