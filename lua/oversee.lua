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
-- Atomic: reads only. In a cluster, head.lua reads each queue.
-- Cost: O(1) a queue
-- @include clock head

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
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = head_of(KEYS[i], KEYS[i + 1])
end
return reply
