-- Returns the due time of a queue's head, or ''; '0' for a key of the wrong type, so that the transfer that follows
-- names the error. due: the ZSET of its due times. Cost O(1).
local function head_due(due)
  local head = redis.pcall('ZRANGE', due, 0, 0, 'WITHSCORES')
  return head.err and '0' or head[2] or ''
end
