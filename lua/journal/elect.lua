-- Elects a promoter behind one marker: from now on Redis refuses all promoters of earlier tokens there.
-- KEYS journal        HASH  marker of the journal of this Redis, see fencing.lua
-- KEYS journal_guard  HASH  number of a row -> its state, see promote.lua; another journal's leaves
-- ARGV journal_id  of the journal
-- ARGV token       of the promoter, which the journal gives to nobody else
-- ARGV epoch       NUMBER  as the journal has it; with `anew` the one that begins
-- ARGV least       NUMBER  least epoch that the marker may have
-- ARGV heartbeat   NUMBER  as the journal has it
-- ARGV guard       id of the journal's numbers
-- ARGV is_anew     FLAG    to write the marker where it is missing or behind
-- Returns {word, the marker's token, epoch and heartbeat, '' without one}; word is 'elected'; or, with nothing changed,
-- 'lost' (there is no marker), 'other' (that of another journal), 'superseded' (a later promoter leads), 'behind'
-- (Redis was set back), 'ahead' (the journal was set back, or has gone on since it was read, or a leader noticed a loss
-- and died before it told the journal)
-- Atomic: at any moment one promoter leads behind a marker.
-- Cost: O(1)
-- @include fencing

local marker = redis.call('HMGET', journal, 'id', 'token', 'epoch', 'heartbeat')
local of, its_token, its_epoch, its_heartbeat = unpack(marker)
local is_behind = of and (tonumber(its_epoch) < least or tonumber(its_heartbeat) < heartbeat - 1)
local word = 'elected'
if of and of ~= journal_id then
  word = 'other'
elseif of and tonumber(its_token) > tonumber(token) then
  word = 'superseded'
elseif of and (tonumber(its_epoch) > epoch or tonumber(its_heartbeat) > heartbeat) then
  word = 'ahead'
elseif not (of or is_anew) then
  word = 'lost'
elseif is_behind and not is_anew then
  word = 'behind'
end
if word == 'elected' then
  redis.call('HSET', journal, 'id', journal_id, 'token', token, 'epoch', epoch, 'heartbeat', heartbeat)
  if is_anew then
    redis.call('HSET', journal, 'server', server_id(), 'redis', token)
  end
  own_guard(journal, journal_guard, guard)
end
return { word, its_token or '', its_epoch or '', its_heartbeat or '' }
