-- Elects a promoter: from now on Redis refuses all promoters before it.
-- KEYS[1] journal        HASH  marker: id, token, epoch, heartbeat and guard of the journal that this Redis belongs to
-- KEYS[2] journal_guard  HASH  number of a row -> its state, see promote.lua; another journal's leaves
-- ARGV[1] id         of the journal
-- ARGV[2] epoch      as the journal has it
-- ARGV[3] heartbeat  as the journal has it
-- ARGV[4] guard      id of the journal's numbers
-- Returns {'elected', the new token, now}; or, with nothing changed, {word, the marker's token, epoch and heartbeat};
-- word is 'lost' (there is no marker), 'other' (that of another journal), 'behind' (Redis was set back), 'ahead' (the
-- journal was set back, or has gone on since it was read)
-- Atomic: at any moment one promoter leads.
-- Cost: O(1)
-- @include clock fencing wrong_type

local journal, journal_guard = KEYS[1], KEYS[2]
local id, epoch, heartbeat, guard = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local now = now_ms()

local wrong = wrong_type({ [journal] = 'hash', [journal_guard] = 'hash' })
if wrong then
  return wrong
end
local of, token, its_epoch, its_heartbeat = unpack(redis.call('HMGET', journal, 'id', 'token', 'epoch', 'heartbeat'))
local word = not of and 'lost' or of ~= id and 'other'
if not word and (tonumber(its_epoch) < epoch or tonumber(its_heartbeat) < heartbeat - 1) then
  word = 'behind'
elseif not word and (tonumber(its_epoch) > epoch or tonumber(its_heartbeat) > heartbeat) then
  word = 'ahead'
end
if word then
  return { word, token or '', its_epoch or '', its_heartbeat or '' }
end
local elected = new_token(token, now)
redis.call('HSET', journal, 'token', elected)
own_guard(journal, journal_guard, guard)
return { 'elected', elected, string.format('%.17g', now) }
