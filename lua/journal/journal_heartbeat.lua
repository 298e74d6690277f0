-- Sets the heartbeat of a journal's marker to that of the journal, if Redis has not lost data meanwhile.
-- KEYS journal  HASH  marker: id, token, epoch and heartbeat of the journal that this Redis belongs to
-- ARGV journal_id  of the journal
-- ARGV token       of the caller
-- ARGV heartbeat   as the journal has it
-- ARGV compared    the server whose data the caller has compared with the journal, as in this script; '' for none
-- Returns {word, token of the marker or '', now, the server's id if it is to be compared, else ''}; word is 'sound';
-- or, with nothing changed, 'lost', 'other', 'superseded', or 'behind' (Redis was set back to an older state)
-- Atomic: only the promoter that leads sets the heartbeat.
-- Cost: O(1)
-- @include clock fencing

local word = fenced_off(journal, journal_id, token)
local latest, its_heartbeat, known = unpack(redis.call('HMGET', journal, 'token', 'heartbeat', 'server'))
local server = server_id()
if not word and tonumber(its_heartbeat) < tonumber(heartbeat) - 1 then
  word = 'behind'
elseif not word then
  -- A full Redis refuses a script whose first write needs memory, and lets later writes pass.
  redis.call('HDEL', journal, '')
  redis.call('HSET', journal, 'heartbeat', heartbeat)
  if not known or known == '' or server == compared then
    redis.call('HSET', journal, 'server', server)
    known = server
  end
end
local is_new = not word and server ~= '' and known ~= server
return { word or 'sound', latest or '', string.format('%.17g', now_ms()), is_new and server or '' }
