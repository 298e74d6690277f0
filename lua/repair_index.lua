-- Finds index entries that no body belongs to, and removes them.
-- KEYS[1] due     ZSET    message -> due time, ms since the epoch
-- KEYS[2] backup  HASH    id -> message
-- KEYS[3] order   STRING  count of messages marked so far
-- KEYS[4] twins   ZSET    ids of messages stored beside another of the same id
-- ARGV[1] mend    1, or 0 to change nothing
-- ARGV[2...] one an entry: index member
-- Returns for each entry: 'sound', 'gone' (there is no such entry), 'lost' (no body has its id) or 'stale' (the body's
-- entry is another, which gets its due time if it has none)
-- Atomic: an entry is removed only while no body belongs to it.
-- Cost: O(log N) an entry
-- @include wrong_type
-- @include marks

local keys = { due = KEYS[1], backup = KEYS[2], order = KEYS[3], twins = KEYS[4] }
local mend = ARGV[1] == '1'

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end

local function check(member)
  local score = redis.call('ZSCORE', keys.due, member)
  if not score then
    return 'gone'
  end
  local id = id_of(member)
  local value = redis.call('HGET', keys.backup, id)
  if not value then
    if mend then
      redis.call('ZREM', keys.due, member)
      redis.call('ZREM', keys.twins, id)
    end
    return 'lost'
  elseif member_of(id, value) ~= member then
    if mend then
      redis.call('ZADD', keys.due, 'NX', score, member_of(id, value))
      redis.call('ZREM', keys.due, member)
    end
    return 'stale'
  end
  return 'sound'
end

local reply = {}
for i = 2, #ARGV do
  reply[#reply + 1] = check(ARGV[i])
end
return reply
