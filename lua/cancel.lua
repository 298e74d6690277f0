-- Removes the waiting messages of some ids.
-- KEYS[1] due     ZSET    message -> due time, ms since the epoch
-- KEYS[2] backup  HASH    id -> message
-- KEYS[3] order   STRING  count of messages marked so far
-- KEYS[4] twins   ZSET    ids of messages stored beside another of the same id
-- KEYS[5] cancelled  ZSET  ids whose chains take no step -> until when, ms since the epoch
-- KEYS[6] chains     ZSET  ids of chains -> due time of the latest step; '' -> inf where chains are in use
-- ARGV[1] count   most twins of an id to remove
-- ARGV[2] bytes   about the most bytes to remove, beyond which the other ids are left
-- ARGV[3] step    what the body of every step of any chain contains
-- ARGV[4...] one a task: id
-- Returns for each id that was searched, in order: {id under which it was stored, due time, priority, body, and so on
-- for each message removed}
-- Atomic: what is returned will not be delivered; what is not was not waiting. An id with messages, none of which is a
-- step, is free for a chain again.
-- Cost: O(log N) an id
-- @include wrong_type
-- @include search

local keys = { due = KEYS[1], backup = KEYS[2], order = KEYS[3], twins = KEYS[4] }
local cancelled, chains = KEYS[5], KEYS[6]
local count, bytes, step = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local ids = { unpack(ARGV, 4) }

local wrong = wrong_stored(keys) or wrong_type({ [cancelled] = 'zset', [chains] = 'zset' })
if wrong then
  return wrong
end
local reply = search(keys, ids, count, bytes, remove)
for i, found in ipairs(reply) do
  local has_step = false
  for at = 4, #found, 4 do
    has_step = has_step or string.find(found[at], step, 1, true)
  end
  if #found > 0 then
    -- Of a step, a copy that was delivered twice may be running: the note stays. It is the chain that has ended.
    redis.call('ZREM', has_step and chains or cancelled, ids[i])
  end
end
return reply
