-- Notes rows of the journal that a caller is about to bring, so that it can tell whether they stay untouched.
-- KEYS[1] journal_guard  HASH  number of a row -> 'p' (pushed), 'c' (claimed) or 'h' (held), since when,
-- ms, and ':' with the name of the hold
-- ARGV[1] hold  name of the hold, which nobody else has
-- ARGV[2...] numbers of the rows
-- Returns for each row: 'held'; or, with nothing changed, 'pushed' or 'claimed'
-- Atomic: the note stays until the row is pushed, claimed, or held by another caller.
-- Cost: O(1) a row
-- @include clock wrong_type

local journal_guard, hold = KEYS[1], ARGV[1]

local wrong = wrong_type({ [journal_guard] = 'hash' })
if wrong then
  return wrong
end
local since, reply = string.format('%.0f', math.floor(now_ms())), {}
for i = 2, #ARGV do
  local kind = string.sub(redis.call('HGET', journal_guard, ARGV[i]) or 'h', 1, 1)
  if kind == 'h' then
    redis.call('HSET', journal_guard, ARGV[i], 'h' .. since .. ':' .. hold)
  end
  reply[i - 1] = kind == 'h' and 'held' or kind == 'c' and 'claimed' or 'pushed'
end
return reply
