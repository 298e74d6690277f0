-- Removes what Redis remembers of a bulk job, or of its part in the slot of a queue, if it has ended.
-- KEYS[1] job     HASH  state of the job
-- KEYS[2] guard   SET   ids that the job has sent or claimed
-- KEYS[3] staged  LIST  messages to be sent when the job is committed
-- ARGV[1] at_any  '1' to remove it in any state, with what it has staged
-- Returns 'dropped'; or, with nothing changed, 'unknown' when Redis has no such job, or the state of one that has not
-- ended: 'open' or 'publishing'
-- Atomic: all or nothing.
-- Cost: O(1); Redis frees the memory in the background
-- @include wrong_type

local job, guard, staged, at_any = KEYS[1], KEYS[2], KEYS[3], ARGV[1] == '1'

local wrong = wrong_type({ [job] = 'hash', [guard] = 'set', [staged] = 'list' })
if wrong then
  return wrong
end
local state = redis.call('HGET', job, 'state')
if not state then
  return 'unknown'
elseif not at_any and (state == 'open' or state == 'publishing') then
  return state
end
redis.call('UNLINK', job, guard, staged)
return 'dropped'
