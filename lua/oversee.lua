-- Reads for a deputy whether the leading transfer worker is there, and which message of each queue is next.
-- KEYS[1]    leader  STRING  name of the leading transfer worker, with a TTL
-- KEYS[2]    first   STRING  name of its first deputy, with a TTL
-- KEYS[3]    second  STRING  name of its second deputy, with a TTL
-- KEYS[4...] due, bucket  ZSET, HASH  two a queue: message -> due time, ms since the epoch; its tokens, see bucket.lua,
-- or, where the queue has no rate, `due` again
-- ARGV[1] wake  channel to which all three subscribe
-- Returns {now, 'there' or 'gone', then for each queue: due time of its head or '', beginning of its index member,
-- until when its rate holds due messages back or ''}; a key of the wrong type has the due time '0', so that the
-- transfer that follows names the error
-- Atomic: reads only. The keys need not share a slot: a caller may read them in several calls.
-- Cost: O(1) a queue
-- @include clock

-- How many bytes of a member are returned. Ids and marks, which tell members of one due time apart, are at their
-- beginning; in Redisson's form the message follows.
local BEGINNING = 16

local leader, first, second = KEYS[1], KEYS[2], KEYS[3]
local wake = ARGV[1]

local holders = 0
for _, lease in ipairs({ leader, first, second }) do
  holders = holders + (redis.call('GET', lease) and 1 or 0)
end
-- The subscription of a process that is killed ends at once, and its lease later. An ACL may forbid the question.
local found = redis.pcall('PUBSUB', 'NUMSUB', wake)
local is_gone = not redis.call('GET', leader) or (not found.err and found[2] < holders)

local reply = { string.format('%.17g', now_ms()), is_gone and 'gone' or 'there' }
for i = 4, #KEYS, 2 do
  local due, bucket = KEYS[i], KEYS[i + 1]
  local head = redis.pcall('ZRANGE', due, 0, 0, 'WITHSCORES')
  reply[#reply + 1] = head.err and '0' or head[2] or ''
  reply[#reply + 1] = not head.err and head[1] and string.sub(head[1], 1, BEGINNING) or ''
  local held = bucket ~= due and redis.pcall('HGET', bucket, 'held')
  reply[#reply + 1] = type(held) == 'string' and held or ''
end
return reply
