-- Removes waiting messages that are still as they were read, and ends the delay chains of the steps among them.
-- KEYS[1] due        ZSET         message -> due time, ms since the epoch
-- KEYS[2] bodies     HASH|LIST    bodies of the messages
-- KEYS[3] notes      STRING|HASH  count of messages marked, and more
-- KEYS[4] ids        ZSET|HASH    ids of twins, or index of messages by id
-- KEYS[5] cancelled  ZSET         ids whose chains take no step -> end of that ban, ms since the epoch
-- KEYS[6] chains     ZSET         ids of chains -> due time of the latest step; '' -> inf where chains are in use.
-- Neither is given where they are in another slot: then no message has the id of a chain
-- ARGV[1] ttl  for how long a chain that ends takes no step, ms
-- ARGV[2] counts  key of the queue's counters
-- ARGV[3...] four a message: id under which it is stored, SHA-1 of its body, due time, and for a step the id of its
-- chain, else ''
-- Returns for each message: 'cancelled', or, with nothing changed, 'not_delayed' or 'changed' (another body or another
-- due time waits under the id)
-- Atomic: a message with the word 'cancelled' will not be delivered, and its chain takes no further step.
-- Cost: O(log N) a message
-- @include as_read clock find tally wrong_type

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local cancelled, chains = KEYS[5], KEYS[6]
local ttl, counts, now = tonumber(ARGV[1]), ARGV[2], now_ms()

local wrong = wrong_stored(keys) or cancelled and wrong_type({ [cancelled] = 'zset', [chains] = 'zset' })
if wrong then
  return wrong
end

local function discard(id, sha, due_ms)
  local message, word = as_read(keys, id, sha, due_ms)
  if not message then
    return word
  end
  remove(keys, message)
  return 'cancelled'
end

local left = redis.pcall('PTTL', keys.due) -- the last message may leave
local reply, ended, removed = {}, 0, 0
for i = 3, #ARGV, 4 do
  local word, chain = discard(ARGV[i], ARGV[i + 1], ARGV[i + 2]), ARGV[i + 3]
  reply[#reply + 1] = word
  removed = removed + (word == 'cancelled' and 1 or 0)
  if word == 'cancelled' and chain ~= '' then -- a copy of the step may run: it was delivered twice
    redis.call('ZADD', cancelled, 'GT', now + ttl, chain)
    redis.call('ZREM', chains, chain)
    ended = ended + 1
  end
end
if ended > 0 then
  -- A call removes up to twice as many notes as it adds, so that the number of notes falls.
  local spare = math.min(redis.call('ZCOUNT', cancelled, '-inf', now), 2 * ended)
  if spare > 0 then
    redis.call('ZREMRANGEBYRANK', cancelled, 0, spare - 1)
  end
  if redis.call('PTTL', cancelled) < ttl then
    redis.call('PEXPIRE', cancelled, ttl)
  end
end
tally_operation(counts, 'cancel', removed, keys.due, left)
return reply
