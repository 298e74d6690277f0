-- Claims rows that were taken out of the journal, so that no promoter puts them into the store any more.
-- KEYS[1] journal_guard  HASH  number of a row -> 'p' (pushed), 'c' (claimed) or 'h' (held), since when,
-- ms, and ':' with the name of the hold
-- ARGV[1...] numbers of the rows
-- Returns for each row: 'claimed'; or 'pushed', with nothing changed, when a promoter has put it into the store
-- Atomic: of a claim and a promotion of the same row, one comes first and decides.
-- Cost: O(1) a row
-- @include clock wrong_type

local journal_guard = KEYS[1]

local wrong = wrong_type({ [journal_guard] = 'hash' })
if wrong then
  return wrong
end
local since, reply = string.format('%.0f', math.floor(now_ms())), {}
-- A full Redis refuses a script whose first write needs memory, and lets later writes pass: a cancel must not fail.
redis.call('HDEL', journal_guard, '')
for i, row in ipairs(ARGV) do
  local kind = string.sub(redis.call('HGET', journal_guard, row) or 'h', 1, 1)
  if kind == 'h' then
    redis.call('HSET', journal_guard, row, 'c' .. since)
  end
  reply[i] = kind == 'p' and 'pushed' or 'claimed'
end
return reply
