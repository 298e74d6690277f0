-- Reads which message of a queue is next, for a standby.
-- KEYS due     ZSET  message -> due time, ms since the epoch
-- KEYS bucket  HASH  tokens of the queue, see bucket.lua, or, where it has no rate, `due` again
-- Returns {now, due time of the head or '', beginning of its index member, until when its rate holds due messages back
-- or ''}; a key of the wrong type has the due time '0', so that the transfer that follows names the error
-- Atomic: reads only.
-- Cost: O(1)
-- @unchecked
-- @include clock

-- How many bytes of a member are returned. Ids and marks, which tell members of one due time apart, are at their
-- beginning; in Redisson's layout the message follows.
local BEGINNING = 16

local head = redis.pcall('ZRANGE', due, 0, 0, 'WITHSCORES')
local held = bucket ~= due and redis.pcall('HGET', bucket, 'held')
return {
  string.format('%.17g', now_ms()),
  head.err and '0' or head[2] or '',
  not head.err and head[1] and string.sub(head[1], 1, BEGINNING) or '',
  type(held) == 'string' and held or '',
}
