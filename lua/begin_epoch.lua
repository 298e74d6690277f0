-- Writes the marker of a journal for an epoch, and elects a promoter.
-- KEYS[1] journal        HASH  marker: id, token, epoch, heartbeat and guard of the journal that this Redis belongs to
-- KEYS[2] journal_guard  HASH  number of a row -> its state, see promote.lua; another journal's leaves
-- ARGV[1] id         of the journal
-- ARGV[2] epoch      that begins
-- ARGV[3] heartbeat  as the journal has it
-- ARGV[4] seen       token of the marker that is there as the caller knows it, '' for none
-- ARGV[5] guard      id of the journal's numbers
-- Returns {'elected', the new token, now}; or {'superseded'}, with nothing changed, when another marker is there
-- Atomic: of several callers that have seen the same marker, one begins the epoch.
-- Cost: O(1)
-- @include clock fencing wrong_type

local journal, journal_guard = KEYS[1], KEYS[2]
local id, epoch, heartbeat, seen, guard = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local now = now_ms()

local wrong = wrong_type({ [journal] = 'hash', [journal_guard] = 'hash' })
if wrong then
  return wrong
end
local token = redis.call('HGET', journal, 'token') or ''
if token ~= seen then
  return { 'superseded' }
end
local elected = new_token(token, now)
redis.call('HSET', journal, 'id', id, 'token', elected, 'epoch', epoch, 'heartbeat', heartbeat, 'server', server_id())
own_guard(journal, journal_guard, guard)
return { 'elected', elected, string.format('%.17g', now) }
