-- Puts messages of one queue into the store, under their ids, until they are due.
-- KEYS[1-4] keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV[1] wake    channel on which a new head is announced
-- ARGV[2] queue   name, as announced
-- ARGV[3] expire  ms after which an unused queue expires, 0 for never
-- ARGV[4...] four a message: id, due (ms since the epoch, or '+' and ms from now), priority (0-9), body
-- Returns {'first' | 'head' | 'behind', number offered, number repeated, number renamed}
-- Atomic: every message is in the store when this returns, and a new head has been announced.
-- Cost: O(log N) a message
-- @first hash offer_one
-- @include announce clock lifetime put_all

local wake, queue, expire = ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = now_ms()
local rows, count = {}, nil

for i = 4, #ARGV, 4 do
  rows[#rows + 1] = { id = ARGV[i], due = at(ARGV[i + 1], now), priority = ARGV[i + 2], body = ARGV[i + 3] }
end
local life = life_of(keys, now, expire)
local place = announce(keys, wake, queue, function()
  count = put_all(keys, rows)
end)
live_on(keys, life, now)
return { place, count.offered, count.repeated, count.renamed }
