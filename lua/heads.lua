-- Reads when the next message of each of several queues is due.
-- KEYS[...] due  ZSET  message -> due time, ms since the epoch; one key a queue
-- Returns {now, then for each key: due time of its head or ''}; a key of the wrong type has the due time '0', so that
-- the transfer that follows names the error
-- Atomic: reads only. The keys need not share a slot: a caller may read them in several calls.
-- Cost: O(1) a queue
-- @include clock

-- Keys that one command asks about: where none of them is there, as in an idle fleet, no other command is needed.
local TOGETHER = 1000

local reply = { string.format('%.17g', now_ms()) }
for start = 1, #KEYS, TOGETHER do
  local dues = { unpack(KEYS, start, math.min(start + TOGETHER - 1, #KEYS)) }
  local is_none = redis.pcall('EXISTS', unpack(dues)) == 0
  for _, due in ipairs(dues) do
    local head = is_none and {} or redis.pcall('ZRANGE', due, 0, 0, 'WITHSCORES')
    reply[#reply + 1] = head.err and '0' or head[2] or ''
  end
end
return reply
