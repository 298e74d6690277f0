-- Lets an elected promoter lead at one of its queues, where Redis has hash slots.
-- KEYS[1] journal        HASH  marker of the queue: id, token, epoch, heartbeat and guard of its journal
-- KEYS[2] journal_guard  HASH  number of a row of the queue -> its state, see promote.lua; another journal's leaves
-- ARGV[1] id         of the journal
-- ARGV[2] token      of the promoter
-- ARGV[3] epoch      as the journal has it; with `anew` the one that begins
-- ARGV[4] heartbeat  as the journal has it
-- ARGV[5] is_anew    '1' to write the marker whatever is there, but that of a later token or another journal
-- ARGV[6] guard      id of the journal's numbers
-- Returns 'elected'; or, with nothing changed, 'lost' (there is no marker), 'other' (that of another journal),
-- 'superseded' (a later promoter leads), 'behind' (Redis was set back), 'ahead' (of the journal: who noticed a loss
-- has died before the journal knew)
-- Atomic: at any moment one promoter leads.
-- Cost: O(1)
-- @include fencing wrong_type

local journal, journal_guard = KEYS[1], KEYS[2]
local id, token, epoch, heartbeat = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local is_anew, guard = ARGV[5], ARGV[6]

local wrong = wrong_type({ [journal] = 'hash', [journal_guard] = 'hash' })
if wrong then
  return wrong
end
local marker = redis.call('HMGET', journal, 'id', 'token', 'epoch', 'heartbeat')
local of, its_token, its_epoch, its_heartbeat = unpack(marker)
if of and of ~= id then
  return 'other'
elseif of and tonumber(its_token) > tonumber(token) then
  return 'superseded'
elseif is_anew == '1' then
  redis.call('HSET', journal, 'id', id, 'token', token, 'epoch', epoch, 'heartbeat', heartbeat, 'server', server_id())
  own_guard(journal, journal_guard, guard)
  return 'elected'
elseif not of then
  return 'lost'
elseif tonumber(its_heartbeat) < heartbeat - 1 then
  return 'behind'
elseif tonumber(its_epoch) > epoch then
  return 'ahead'
end
redis.call('HSET', journal, 'token', token, 'epoch', epoch, 'heartbeat', heartbeat)
own_guard(journal, journal_guard, guard)
return 'elected'
