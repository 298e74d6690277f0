-- Counts by queue the messages that consumers hold, a page of them.
-- KEYS unacked_index  ZSET  delivery tag -> time of delivery, s since the epoch; kombu's
-- KEYS unacked        HASH  delivery tag -> message, exchange and routing key; kombu's
-- ARGV start             NUMBER  how many messages to skip, those that are held for longest
-- ARGV count, max_bytes  NUMBER  how many messages, and about how many bytes, to look at, at most
-- Returns {number looked at, 0 at the end; then for each queue: its name as a JSON text, or '', number of messages}
-- Atomic: reads only.
-- Cost: O(log N + messages looked at)

-- Longer names are not looked for.
local NAME = 300

local tags = redis.call('ZRANGE', unacked_index, start, start + count - 1)
local found, looked, size, slice = {}, 0, 0, 1
while looked < #tags and size < max_bytes do
  local last = math.min(looked + slice, #tags)
  for _, note in ipairs(redis.call('HMGET', unacked, unpack(tags, looked + 1, last))) do
    if note then
      size = size + #note
      -- A quote inside the name has a backslash before it; that at the name's beginning has none.
      local name = string.match(string.sub(note, -NAME), '.*[^\\](".*")%]$') or ''
      found[name] = (found[name] or 0) + 1
    end
  end
  looked, slice = last, math.min(slice * 2, 64)
end
local reply = { looked }
for name, number in pairs(found) do
  reply[#reply + 1] = name
  reply[#reply + 1] = number
end
return reply
