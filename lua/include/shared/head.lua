-- How many bytes of a member are returned. Ids and marks, which tell members of one due time apart, are at their
-- beginning; in Redisson's layout the message follows.
local BEGINNING = 16

-- Returns the due time of a queue's head or '', the beginning of its index member, and until when the queue's rate
-- holds due messages back or ''. bucket: its tokens, see bucket.lua, or `due` again where it has no rate. A key of the
-- wrong type has the due time '0', so that the transfer that follows names the error. Cost O(1).
local function head_of(due, bucket)
  local head = redis.pcall('ZRANGE', due, 0, 0, 'WITHSCORES')
  local held = bucket ~= due and redis.pcall('HGET', bucket, 'held')
  return head.err and '0' or head[2] or '',
    not head.err and head[1] and string.sub(head[1], 1, BEGINNING) or '',
    type(held) == 'string' and held or ''
end
