-- Puts messages of one queue into the store unless messages of their ids or keys wait there, or in place of those.
-- KEYS keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV wake, queue  channel on which a new head is announced, and the name of the queue there
-- ARGV expire       NUMBER  ms after which an unused queue expires, 0 for never
-- ARGV mode         'keep' where a message of the id waits, or 'replace' it
-- ARGV count        how many duplicates of an id to replace at most
-- ARGV returning    FLAG    to return what was replaced, too
-- ARGV rows...      {id, due, priority, body}  due: ms since the epoch, or '+' and ms from now; priority: 0-9
-- Returns {'first' | 'head' | 'behind', {for each message: 'added', 'kept', 'replaced', or 'repeated' if just this
-- message waits}, {for each: the id of the task that waits}, {of each message that went, if that is asked: its
-- priority, a digit, and its body}}
-- Atomic: of an id or key, one message waits when this returns, and a new head has been announced.
-- Cost: O(log N) a message
-- @include clock once

local now = now_ms()

set_due(rows, now)
local to = { keys = keys, wake = wake, queue = queue, expire = expire }
local gone = returning and {} or nil
local place, words, ids = put_all_once(to, now, { mode = mode, count = count, gone = gone }, rows)
return { place, words, ids, gone or {} }
