-- Finds index entries that no body belongs to, and removes them.
-- KEYS[1] due     ZSET  message -> due time, ms since the epoch
-- KEYS[2] backup  HASH  id -> message
-- ARGV[1] mend    1, or 0 to change nothing
-- ARGV[2...] one an entry: index member
-- Returns for each entry: 'sound', 'lost' (no body has its id) or 'stale' (the body's entry is another)
-- Atomic: an entry is removed only while no body belongs to it.
-- Cost: O(log N) an entry
-- @include wrong_type
-- @include marks

local due, backup = KEYS[1], KEYS[2]
local mend = ARGV[1] == '1'

local wrong = wrong_type({ [due] = 'zset', [backup] = 'hash' })
if wrong then
  return wrong
end

local function check(member)
  local id = id_of(member)
  local value = redis.call('HGET', backup, id)
  local state = not value and 'lost' or member_of(id, value) ~= member and 'stale' or 'sound'
  if mend and state ~= 'sound' then
    local score = redis.call('ZSCORE', due, member)
    if state == 'stale' and score then
      redis.call('ZADD', due, 'NX', score, member_of(id, value))
    end
    redis.call('ZREM', due, member)
  end
  return state
end

local reply = {}
for i = 2, #ARGV do
  reply[#reply + 1] = check(ARGV[i])
end
return reply
