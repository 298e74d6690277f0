-- Counts a queue's messages.
-- KEYS due       ZSET  message -> due time, ms since the epoch
-- KEYS ready...  LIST  the queue's lists, one a priority step
-- ARGV base  how the keys begin of what the queue has beside its lists
-- Returns {now, number delayed, number ready, number overdue, next due or '', number ready that may not go now, ...}:
-- for each list that is not empty, and for some keys of limits, two texts of the message that is consumed next: its
-- property `timestamp` or '', its eta or ''
-- Atomic: all numbers are of one moment.
-- Cost: O(log N + bytes of these messages)
-- @include clock parked

local now = now_ms()

local waiting, limited, parked = parked_in(base)
local since = {}

-- Notes since when a message could have been consumed. message: an error for a user without the right to read it.
local function note_since(message)
  message = type(message) == 'string' and message or ''
  -- kombu writes the body first. In a text, a quote has a backslash before it.
  local head = message:find('", "content-encoding"', 1, true) or 1
  local properties = message:find('"properties": ?{', head) or #message
  since[#since + 1] = message:match('"timestamp": ?(%d+%.?%d*)[,}]', properties) or ''
  since[#since + 1] = message:match('"eta": ?"([^"\\]*)"', head) or ''
end

for _, list in ipairs(ready) do
  local length = redis.call('LLEN', list)
  if length > 0 then
    waiting = waiting + length
    note_since(redis.pcall('LINDEX', list, -1))
  end
end
for _, message in ipairs(parked) do
  note_since(message)
end
local delayed, overdue = redis.call('ZCARD', due), redis.call('ZCOUNT', due, '-inf', now)
local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or ''
return { string.format('%.17g', now), delayed, waiting, overdue, head, limited, unpack(since) }
