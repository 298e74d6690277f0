-- Puts a promoter into office: from now on Redis refuses all promoters before it.
-- KEYS[1] journal        HASH  marker: id, term, epoch, beat and guard of the journal that this Redis belongs to
-- KEYS[2] journal_guard  HASH  number of a row -> its state, see promote.lua; another journal's leaves
-- ARGV[1] id     of the journal
-- ARGV[2] epoch  as the journal has it
-- ARGV[3] beat   as the journal has it
-- ARGV[4] guard  id of the journal's numbers
-- Returns {'taken', the new term, now}; or, with nothing changed, {word, the marker's term, epoch and beat}; word is
-- 'lost' (there is no marker), 'other' (that of another journal), 'behind' (Redis was set back), 'ahead' (the journal
-- was set back, or has gone on since it was read)
-- Atomic: at any moment one term is in office.
-- Cost: O(1)
-- @include clock office wrong_type

local journal, journal_guard = KEYS[1], KEYS[2]
local id, epoch, beat, guard = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local now = now_ms()

local wrong = wrong_type({ [journal] = 'hash', [journal_guard] = 'hash' })
if wrong then
  return wrong
end
local of, term, its_epoch, its_beat = unpack(redis.call('HMGET', journal, 'id', 'term', 'epoch', 'beat'))
local word = not of and 'lost' or of ~= id and 'other'
if not word and (tonumber(its_epoch) < epoch or tonumber(its_beat) < beat - 1) then
  word = 'behind'
elseif not word and (tonumber(its_epoch) > epoch or tonumber(its_beat) > beat) then
  word = 'ahead'
end
if word then
  return { word, term or '', its_epoch or '', its_beat or '' }
end
local taken = new_term(term, now)
redis.call('HSET', journal, 'term', taken)
own_guard(journal, journal_guard, guard)
return { 'taken', taken, string.format('%.17g', now) }
