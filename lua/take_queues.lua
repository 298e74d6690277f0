-- Puts a promoter that has taken office into office at one of its queues, where Redis has hash slots.
-- KEYS[1] journal        HASH  marker of the queue: id, term, epoch, beat and guard of the journal that it belongs to
-- KEYS[2] journal_guard  HASH  number of a row of the queue -> its state, see promote.lua; another journal's leaves
-- ARGV[1] id       of the journal
-- ARGV[2] term     of the promoter
-- ARGV[3] epoch    as the journal has it; with `anew` the one that begins
-- ARGV[4] beat     as the journal has it
-- ARGV[5] is_anew  '1' to write the marker whatever is there, but that of a later term or another journal
-- ARGV[6] guard    id of the journal's numbers
-- Returns 'taken'; or, with nothing changed, 'lost' (there is no marker), 'other' (that of another journal),
-- 'superseded' (a later term is in office), 'behind' (Redis was set back), 'ahead' (of the journal: who noticed a loss
-- has died before the journal knew)
-- Atomic: at any moment one term is in office.
-- Cost: O(1)
-- @include office wrong_type

local journal, journal_guard = KEYS[1], KEYS[2]
local id, term, epoch, beat = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local is_anew, guard = ARGV[5], ARGV[6]

local wrong = wrong_type({ [journal] = 'hash', [journal_guard] = 'hash' })
if wrong then
  return wrong
end
local of, its_term, its_epoch, its_beat = unpack(redis.call('HMGET', journal, 'id', 'term', 'epoch', 'beat'))
if of and of ~= id then
  return 'other'
elseif of and tonumber(its_term) > tonumber(term) then
  return 'superseded'
elseif is_anew == '1' then
  redis.call('HSET', journal, 'id', id, 'term', term, 'epoch', epoch, 'beat', beat, 'server', server_id())
  own_guard(journal, journal_guard, guard)
  return 'taken'
elseif not of then
  return 'lost'
elseif tonumber(its_beat) < beat - 1 then
  return 'behind'
elseif tonumber(its_epoch) > epoch then
  return 'ahead'
end
redis.call('HSET', journal, 'term', term, 'epoch', epoch, 'beat', beat)
own_guard(journal, journal_guard, guard)
return 'taken'
