-- Puts messages of one queue into the store unless messages of their ids or keys wait there, or in place of those.
-- KEYS[1-4] keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV[1] wake       channel on which a new head is announced
-- ARGV[2] queue      name, as announced
-- ARGV[3] expire     ms after which an unused queue expires, 0 for never
-- ARGV[4] mode       'keep' where a message of the id waits, or 'replace' it
-- ARGV[5] count      how many duplicates of an id to replace at most
-- ARGV[6] returning  '1' to return what was replaced, too
-- ARGV[7...] four a message: id, due (ms since the epoch, or '+' and ms from now), priority (0-9), body
-- Returns {'first' | 'head' | 'behind', {for each message: 'added', 'kept', 'replaced', or 'repeated' if just this
-- message waits}, {for each: the id of the task that waits}, {of each message that went, if that is asked: its
-- priority, a digit, and its body}}
-- Atomic: of an id or key, one message waits when this returns, and a new head has been announced.
-- Cost: O(log N) a message
-- @include clock once

local wake, queue, expire = ARGV[1], ARGV[2], tonumber(ARGV[3])
local mode, count, returning, now = ARGV[4], ARGV[5], ARGV[6], now_ms()

local rows = {}
for i = 7, #ARGV, 4 do
  rows[#rows + 1] = { id = ARGV[i], due = at(ARGV[i + 1], now), priority = ARGV[i + 2], body = ARGV[i + 3] }
end
local to = { keys = keys, wake = wake, queue = queue, expire = expire }
local gone = returning == '1' and {} or nil
local place, words, ids = put_all_once(to, now, { mode = mode, count = count, gone = gone }, rows)
return { place, words, ids, gone or {} }
