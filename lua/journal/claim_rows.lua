-- Claims rows that were taken out of the journal, or holds rows that a caller is about to bring.
-- KEYS journal_guard  HASH  number of a row -> 'p' (pushed), 'c' (claimed) or 'h' (held), since when,
-- ms, and ':' with the name of the hold
-- ARGV hold  name of a hold, which nobody else has, by which the caller can tell whether the rows stay untouched; ''
-- to claim the rows, so that no promoter puts them into the store any more
-- ARGV numbers...  of the rows
-- Returns for each row: 'claimed' or 'held'; or, with nothing changed, 'pushed' when a promoter has put it into the
-- store, or 'claimed' in place of 'held'
-- Atomic: of a claim and a promotion of the same row, one comes first and decides. A hold stays until the row is
-- pushed, claimed, or held by another caller.
-- Cost: O(1) a row
-- @include clock

local since, reply = string.format('%.0f', math.floor(now_ms())), {}
local note = hold == '' and 'c' .. since or 'h' .. since .. ':' .. hold
-- A full Redis refuses a script whose first write needs memory, and lets later writes pass: a cancel must not fail.
redis.call('HDEL', journal_guard, '')
for i, number in ipairs(numbers) do
  local kind = string.sub(redis.call('HGET', journal_guard, number) or 'h', 1, 1)
  if kind == 'h' then
    redis.call('HSET', journal_guard, number, note)
  end
  reply[i] = kind == 'p' and 'pushed' or kind == 'h' and hold ~= '' and 'held' or 'claimed'
end
return reply
