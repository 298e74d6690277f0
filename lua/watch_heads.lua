-- Reads which message of a queue is next, for a standby.
-- KEYS[1] due     ZSET  message -> due time, ms since the epoch
-- KEYS[2] bucket  HASH  tokens of the queue, see bucket.lua, or, where it has no rate, `due` again
-- Returns {now, due time of the head or '', beginning of its index member, until when its rate holds due messages back
-- or ''}; a key of the wrong type has the due time '0', so that the transfer that follows names the error
-- Atomic: reads only.
-- Cost: O(1)
-- @include clock head

local due, bucket = KEYS[1], KEYS[2]

return { string.format('%.17g', now_ms()), head_of(due, bucket) }
