-- Finds bodies that have no index entry, and gives them one.
-- KEYS keys  of the queue's delayed messages, see include/hash/types.lua
-- ARGV wake, queue  channel on which a new head is announced, and the name of the queue there
-- ARGV mend         FLAG  else it changes nothing
-- ARGV rows...      {id, due}  due: ms since the epoch, which a body without a due time gets, or '' to only look
-- Returns for each body the first word that is true of it: 'gone' (there is no such body), 'unindexed' (it has no index
-- entry), 'unnamed' (a duplicate that a search for the shared id does not find), 'sound'
-- Atomic: a body that is indexed already keeps its due time. A body that lacks an index entry and a name gets both.
-- Cost: O(log N) a body
-- @include announce duplicates lifetime marks

local function is_duplicate(id, value)
  local shared = may_be_duplicate(id) and string.sub(id, 1, -DUPLICATE_SUFFIX - 1)
  return is_keyed(id) or shared and duplicate_of(shared, opened(value)) == id
end

local function check(id, due_ms)
  local value = redis.call('HGET', keys.bodies, id)
  if not value then
    return 'gone'
  end
  local state = 'sound'
  if is_duplicate(id, value) and not redis.call('ZSCORE', keys.ids, id) then
    state = 'unnamed'
    if mend then
      redis.call('ZADD', keys.ids, 0, id)
    end
  end
  if not redis.call('ZSCORE', keys.due, member_of(id, value)) then
    state = 'unindexed'
    if mend and due_ms ~= '' then
      redis.call('ZADD', keys.due, due_ms, member_of(id, value))
    end
  end
  return state
end

local left = redis.call('PTTL', keys.bodies)
local reply = {}
announce(keys, wake, queue, function()
  for i, row in ipairs(rows) do
    reply[i] = check(row.id, row.due)
  end
end)
if mend then
  lengthen_all(keys, left)
end
return reply
