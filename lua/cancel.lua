-- Removes the waiting messages of some ids.
-- KEYS[1] due        ZSET         message -> due time, ms since the epoch
-- KEYS[2] bodies     HASH|LIST    bodies of the messages
-- KEYS[3] notes      STRING|HASH  count of messages marked, and more
-- KEYS[4] ids        ZSET|HASH    ids of twins, or index of messages by id
-- KEYS[5] cancelled  ZSET         ids whose chains take no step -> end of that ban, ms since the epoch
-- KEYS[6] chains     ZSET         ids of chains -> due time of the latest step; '' -> inf where chains are in use.
-- Neither is given where they are in another slot: the caller sees to them
-- ARGV[1] count  how many twins of an id to remove at most
-- ARGV[2] bytes  about how many bytes to remove at most; further ids are not searched
-- ARGV[3] step   text that the body of every step of any chain contains
-- ARGV[4] counts  key of the queue's counters
-- ARGV[5...] one a task: id
-- Returns for each id searched, in order, a list with four items a removed message: id under which the message was
-- stored, due time, priority, body
-- Atomic: a message that is returned will not be delivered; one that is not returned did not wait. An id that has
-- messages, but no step among them, is free for a chain again.
-- Cost: O(log N) an id
-- @include all_from find search tally wrong_type

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local cancelled, chains = KEYS[5], KEYS[6]
local count, bytes, step, counts = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local ids = all_from(ARGV, 5)

local wrong = wrong_stored(keys) or cancelled and wrong_type({ [cancelled] = 'zset', [chains] = 'zset' })
if wrong then
  return wrong
end
local left = redis.pcall('PTTL', keys.due) -- the last message may leave
local reply, removed = search(keys, ids, count, bytes, remove), 0
for i, found in ipairs(reply) do
  local has_step = false
  removed = removed + #found / 4
  for at = 4, #found, 4 do
    has_step = has_step or string.find(found[at], step, 1, true)
  end
  if #found > 0 and cancelled then
    -- A step may have been delivered twice, and its other copy may run: the note in `cancelled` stays, the chain ends.
    redis.call('ZREM', has_step and chains or cancelled, ids[i])
  end
end
tally_operation(counts, 'cancel', removed, keys.due, left)
return reply
