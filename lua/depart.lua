-- Takes waiting messages that are still as they were read out of a queue, on their way to a queue in another slot.
-- KEYS[1] due     ZSET         message -> due time, ms since the epoch
-- KEYS[2] bodies  HASH|LIST    bodies of the messages
-- KEYS[3] notes   STRING|HASH  count of messages marked, and more
-- KEYS[4] ids     ZSET|HASH    ids of twins, or index of messages by id
-- KEYS[5] moving  LIST         messages on their way: name of the move, the other queue, then four a message
-- ARGV[1] name  of this move, which no other move has
-- ARGV[2] queue  name of the queue to which they go
-- ARGV[3] done   name of a move whose messages have come, and are on their way no more; '' for none
-- ARGV[4...] four a message: id under which it is stored, SHA-1 of its body, due time, new body
-- Returns {'busy'} if messages of another move are still on their way; else a word for each message: 'moved', or, with
-- nothing changed, 'not_delayed' or 'changed' (another body or another due time waits under the id)
-- Atomic: a message is in the queue or on its way; cut short, it may repeat a message and never lose one.
-- Cost: O(log N) a message
-- @include as_read find leave wrong_type

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local moving, name, queue, done = KEYS[5], ARGV[1], ARGV[2], ARGV[3]

local wrong = wrong_stored(keys, 5)
if wrong then
  return wrong
end
if done ~= '' and redis.call('LINDEX', moving, 0) == done then
  redis.call('UNLINK', moving)
end
if redis.call('EXISTS', moving) == 1 then
  return { 'busy' }
end

local function depart(id, sha, was_ms, body)
  local message, word = as_read(keys, id, sha, was_ms)
  if not message then
    return word
  end
  if redis.call('EXISTS', moving) == 0 then
    redis.call('RPUSH', moving, name, queue)
  end
  local shared = offered_as(keys, { message.member }, { message.body })[1]
  redis.call('RPUSH', moving, shared, message.due, message.priority, body)
  remove(keys, message)
  return 'moved'
end

local reply = {}
for i = 4, #ARGV, 4 do
  reply[#reply + 1] = depart(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
end
return reply
