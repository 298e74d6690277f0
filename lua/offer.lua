-- Puts messages of one queue into the store, under their ids, until they are due.
-- KEYS keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV wake, queue  channel on which a new head is announced, and the name of the queue there
-- ARGV expire       NUMBER  ms after which an unused queue expires, 0 for never
-- ARGV rows...      {id, due, priority, body}  due: ms since the epoch, or '+' and ms from now; priority: 0-9
-- Returns {'first' | 'head' | 'behind', number offered, number repeated, number renamed}
-- Atomic: every message is in the store when this returns, and a new head has been announced.
-- Cost: O(log N) a message
-- @first hash offer_one
-- @include announce clock lifetime put_all

local now = now_ms()
local count

set_due(rows, now)
local life = life_of(keys, now, expire)
local place = announce(keys, wake, queue, function()
  count = put_all(keys, rows)
end)
live_on(keys, life, now)
return { place, count.offered, count.repeated, count.renamed }
