-- Reads when the next message of a queue is due.
-- KEYS dues...  ZSET  message -> due time, ms since the epoch; one key a layout
-- Returns {now, then for each key: due time of its head or ''}; a key of the wrong type has the due time '0', so that
-- the transfer that follows names the error
-- Atomic: reads only.
-- Cost: O(1)
-- @unchecked
-- @include clock head_due

local reply = { string.format('%.17g', now_ms()) }
for _, due in ipairs(dues) do
  reply[#reply + 1] = head_due(due)
end
return reply
