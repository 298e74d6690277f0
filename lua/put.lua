-- Publishes a page of messages of one queue, once: into the store until they are due, or at once to the queue's lists.
-- KEYS[1]    sender  STRING       number of the latest page that the sender has published
-- KEYS[2-5] keys  of the queue's delayed messages, see include/*/types.lua
-- KEYS[6...] ready   LIST         the queue's lists, one a priority step
-- ARGV[1] wake    channel on which a new head is announced
-- ARGV[2] queue   name, as announced
-- ARGV[3] expire  ms after which an unused queue expires, 0 for never
-- ARGV[4] number  number of the page, higher than those of the sender's pages before
-- ARGV[5] ttl     for how many ms a repeated page is recognized
-- ARGV[6...] first ten numbers: for each priority 0-9 its list, counted from 0; from the 16th on four a message:
-- id, due (ms since the epoch, '+' and ms from now, or '' for now), priority (0-9), body
-- Returns 'first' | 'head' | 'behind' for the messages stored; 'repeated', with nothing changed, for a repeated page
-- Atomic: sends first, notes the page after; cut short, it may repeat messages and never lose one.
-- Cost: O(log N) a message
-- @include clock deliver

local expire, number, ttl = tonumber(ARGV[3]), ARGV[4], ARGV[5]
local to = { keys = keys, wake = ARGV[1], queue = ARGV[2], expire = expire, first_list = 6 }
function to.list_of(priority)
  return KEYS[6 + ARGV[6 + priority]]
end

if tonumber(redis.call('GET', sender) or 0) >= tonumber(number) then
  return 'repeated'
end
local now, rows = now_ms(), {}
for i = 16, #ARGV, 4 do
  rows[#rows + 1] = { id = ARGV[i], due = at(ARGV[i + 1], now), priority = ARGV[i + 2], body = ARGV[i + 3] }
end
local place = deliver(to, now, rows)
redis.call('SET', sender, number, 'PX', ttl)
return place
