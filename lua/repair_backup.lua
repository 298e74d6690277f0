-- Finds bodies that have no index entry, and gives them one.
-- KEYS[1] due     ZSET    message -> due time, ms since the epoch
-- KEYS[2] backup  HASH    id -> message
-- KEYS[3] order   STRING  count of messages marked so far
-- KEYS[4] twins   ZSET    ids of messages stored beside another of the same id
-- ARGV[1] wake    channel on which a new head is announced
-- ARGV[2] queue   name, as announced
-- ARGV[3] mend    1, or 0 to change nothing
-- ARGV[4...] two a body: id, due time in ms since the epoch for when it has none, or '' to only look
-- Returns for each body: 'sound', 'gone' (there is no such body), 'unindexed', 'untwinned' (not among the twins) or
-- 'misordered' (the count of marked messages is behind it)
-- Atomic: a body that is indexed already keeps its due time.
-- Cost: O(log N) a body
-- @include wrong_type
-- @include marks
-- @include announce

local due, backup, order, twins = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local wake, queue, mend = ARGV[1], ARGV[2], ARGV[3] == '1'

local wrong = wrong_type({ [due] = 'zset', [backup] = 'hash', [order] = 'string', [twins] = 'zset' })
if wrong then
  return wrong
end

local function is_twin(id, value)
  return may_be_twin(id) and twin_of(string.sub(id, 1, -TWIN_SUFFIX - 1), opened(value)) == id
end

local function check(id, due_ms)
  local value = redis.call('HGET', backup, id)
  if not value then
    return 'gone'
  elseif not redis.call('ZSCORE', due, member_of(id, value)) then
    if mend and due_ms ~= '' then
      redis.call('ZADD', due, due_ms, member_of(id, value))
    end
    return 'unindexed'
  elseif is_twin(id, value) and not redis.call('ZSCORE', twins, id) then
    if mend then
      redis.call('ZADD', twins, 0, id)
    end
    return 'untwinned'
  elseif is_marked(value) and order_of(value) > tonumber(redis.call('GET', order) or 0) then
    if mend then
      redis.call('SET', order, order_of(value))
    end
    return 'misordered'
  end
  return 'sound'
end

local reply = {}
announce(due, wake, queue, function()
  for i = 4, #ARGV, 2 do
    reply[#reply + 1] = check(ARGV[i], ARGV[i + 1])
  end
end)
return reply
