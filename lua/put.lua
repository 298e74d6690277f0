-- Publishes a page of messages of one queue, once: into the store until they are due, or at once to the queue's lists.
-- KEYS sender    STRING  number of the latest page that the sender has published
-- KEYS keys      of the queue's delayed messages, see include/*/types.lua
-- KEYS ready...  LIST    the queue's lists, one a priority step
-- ARGV wake, queue  channel on which a new head is announced, and the name of the queue there
-- ARGV expire       NUMBER      ms after which an unused queue expires, 0 for never
-- ARGV number       number of the page, higher than those of the sender's pages before
-- ARGV ttl          for how many ms a repeated page is recognized
-- ARGV list_of      PRIORITIES  the queue's lists
-- ARGV rows...  {id, due, priority, body}  due: ms since the epoch, '+' and ms from now, or '' for now; priority: 0-9
-- Returns 'first' | 'head' | 'behind' for the messages stored; 'repeated', with nothing changed, for a repeated page
-- Atomic: sends first, notes the page after; cut short, it may repeat messages and never lose one.
-- Cost: O(log N) a message
-- @include clock deliver

local to = { keys = keys, wake = wake, queue = queue, expire = expire, ready = ready, list_of = list_of }

if tonumber(redis.call('GET', sender) or 0) >= tonumber(number) then
  return 'repeated'
end
local now = now_ms()
set_due(rows, now)
local place = deliver(to, now, rows)
redis.call('SET', sender, number, 'PX', ttl)
return place
