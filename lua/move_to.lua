-- Moves waiting messages of a queue that are still as they were read to another queue.
-- KEYS[1] due     ZSET         message -> due time, ms since the epoch
-- KEYS[2] bodies  HASH|LIST    bodies of the messages
-- KEYS[3] notes   STRING|HASH  count of messages marked, and more
-- KEYS[4] ids     ZSET|HASH    ids of twins, or index of messages by id
-- KEYS[5] from_due     ZSET         from here on the keys of the queue that they leave
-- KEYS[6] from_bodies  HASH|LIST
-- KEYS[7] from_notes   STRING|HASH
-- KEYS[8] from_ids     ZSET|HASH
-- ARGV[1] wake   channel on which a new head is announced
-- ARGV[2] queue  name of the queue to which they go, as announced
-- ARGV[3...] four a message: id under which it is stored, SHA-1 of its body, due time, new body
-- Returns {'first' | 'head' | 'behind', a word for each message...}: 'moved', or, with nothing changed, 'not_delayed'
-- or 'changed' (another body or another due time waits under the id)
-- Atomic: a message is in one of the two queues; cut short, it may repeat a message and never lose one.
-- Cost: O(log N) a message
-- @include announce as_read clock find leave lifetime put wrong_type

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local from_due, from_bodies, from_notes, from_ids = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local from = { due = from_due, bodies = from_bodies, notes = from_notes, ids = from_ids }
local wake, queue, now = ARGV[1], ARGV[2], now_ms()

local wrong = wrong_stored(keys) or wrong_stored(from)
if wrong then
  return wrong
end

local function move(id, sha, was_ms, body)
  local message, word = as_read(from, id, sha, was_ms)
  if not message then
    return word
  end
  local shared = offered_as(from, { message.member }, { message.body })[1]
  put(keys, shared, message.due, message.priority, body, true)
  remove(from, message)
  return 'moved'
end

local life = longer(life_of(keys, now, 0), life_of(from, now, 0))
local reply, moved = {}, false
local place = announce(keys, wake, queue, function()
  for i = 3, #ARGV, 4 do
    reply[#reply + 1] = move(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
    moved = moved or reply[#reply] == 'moved'
  end
end)
if moved then
  live_on(keys, life, now)
  if life.left == -1 then
    persist(keys)
  end
end
return { place, unpack(reply) }
