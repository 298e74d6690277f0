-- Sets the beat of a journal's marker to that of the journal, if Redis has not lost data meanwhile.
-- KEYS[1] journal  HASH  marker: id, term, epoch and beat of the journal that this Redis belongs to
-- ARGV[1] id    of the journal
-- ARGV[2] term  of the caller
-- ARGV[3] beat  as the journal has it
-- ARGV[4] compared  the server whose data the caller has compared with the journal, as of this script; '' for none
-- Returns {word, term of the marker or '', now, the server's id if it is to be compared, else ''}; word is 'sound'; or,
-- with nothing changed, 'lost', 'other', 'superseded', or 'behind' (Redis was set back to an older state)
-- Atomic: only the promoter in office sets the beat.
-- Cost: O(1)
-- @include clock office wrong_type

local journal = KEYS[1]
local id, term, beat, compared = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local wrong = wrong_type({ [journal] = 'hash' })
if wrong then
  return wrong
end
local word = out_of_office(journal, id, term)
local latest, its_beat, known = unpack(redis.call('HMGET', journal, 'term', 'beat', 'server'))
local server = server_id()
if not word and tonumber(its_beat) < tonumber(beat) - 1 then
  word = 'behind'
elseif not word then
  -- A full Redis refuses a script whose first write needs memory, and lets later writes pass.
  redis.call('HDEL', journal, '')
  redis.call('HSET', journal, 'beat', beat)
  if not known or known == '' or server == compared then
    redis.call('HSET', journal, 'server', server)
    known = server
  end
end
local is_new = not word and server ~= '' and known ~= server
return { word or 'sound', latest or '', string.format('%.17g', now_ms()), is_new and server or '' }
