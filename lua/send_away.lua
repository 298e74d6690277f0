-- Takes a message out of the store that waits in the journal as well by now, unless somebody has asked for its row.
-- KEYS[1] journal_guard  HASH         number of a row -> 'p' (pushed), 'c' (claimed), 'h' (held) or 'm' (moving away),
-- since when, ms, and ':' with the name of the hold
-- KEYS[2] due            ZSET         message -> due time, ms since the epoch
-- KEYS[3] bodies         HASH|LIST    bodies of the messages
-- KEYS[4] notes          STRING|HASH  count of messages marked, and more
-- KEYS[5] ids            ZSET|HASH    ids of twins, or index of messages by id
-- ARGV[1] row     number of the row that waits
-- ARGV[2] id      under which the message is stored
-- ARGV[3] sha     SHA-1 of its body
-- ARGV[4] due_ms  its due time, ms since the epoch
-- Returns 'sent_away': the journal alone has the message now. Or, with the message left as it is: 'pushed' (somebody
-- has asked for the row, so that the message stays), 'free' (the row is not noted any more), 'not_delayed' or 'changed'
-- (another body or another due time waits under the id)
-- Atomic: the row is noted as moving away, or as pushed, if and only if the store decides what becomes of the message.
-- Cost: O(log N)
-- @include as_read clock find wrong_type

local journal_guard = KEYS[1]
local keys = { due = KEYS[2], bodies = KEYS[3], notes = KEYS[4], ids = KEYS[5] }
local row, id, sha, due_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local wrong = wrong_stored(keys) or wrong_type({ [journal_guard] = 'hash' })
if wrong then
  return wrong
end
local kind = string.sub(redis.call('HGET', journal_guard, row) or '', 1, 1)
if kind ~= 'm' then
  return kind == 'p' and 'pushed' or 'free'
end
local message, word = as_read(keys, id, sha, due_ms)
if not message then -- somebody may be about to claim the row, and has to hear that the store has decided
  redis.call('HSET', journal_guard, row, string.format('p%.0f', math.floor(now_ms())))
  return word
end
remove(keys, message)
redis.call('HDEL', journal_guard, row)
return 'sent_away'
