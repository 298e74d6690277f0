-- Takes rows out of the guard which the journal has marked, for the promoter that leads.
-- KEYS journal        HASH  marker, see fencing.lua
-- KEYS journal_guard  HASH  number of a row -> its state, see promote.lua
-- ARGV of          id of the journal
-- ARGV token       of the promoter
-- ARGV numbers...  of the rows
-- Returns 'settled'; or, with nothing changed, why the promoter does not lead: 'lost', 'other', 'superseded', 'behind'
-- Atomic: a promoter that has read a row before it was marked, and leads by now, finds it in the guard.
-- Cost: O(1) a row
-- @include fencing

local word = fenced_off(journal, of, token)
if not word then
  redis.call('HDEL', journal_guard, unpack(numbers))
end
return word or 'settled'
