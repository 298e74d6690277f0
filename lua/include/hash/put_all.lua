-- @include duplicates has_duplicates large marks put

-- Most messages that a few commands store: Lua cannot unpack more than 8,000 values.
local AT_ONCE = 2000

-- Does what `put_all` does, where nothing is out of the ordinary: no id is taken, comes twice, has duplicates or is of
-- a waiting key, and no message is large. The marks of all messages are counted at once. Returns whether it did; if
-- not, nothing has changed. Cost O(log N) a message.
local function put_new(keys, rows)
  if #rows > AT_ONCE then
    return false
  end
  local has_ids = redis.call('ZCARD', keys.ids) > 0
  local ids, dues, seen, first, last, is_sorted = {}, {}, {}, 1, 1, true
  for i = 1, #rows do
    local row = rows[i]
    local id, due = row.id, tonumber(row.due)
    if seen[id] or is_keyed(id) or #row.body > LARGE or has_ids and may_have_duplicates(keys.ids, id) then
      return false
    end
    seen[id], ids[i], dues[i], is_sorted = true, id, due, is_sorted and due >= (dues[i - 1] or due)
    first, last = due < dues[first] and i or first, due > dues[last] and i or last
  end
  local kept = redis.call('HMGET', keys.bodies, unpack(ids))
  for i = 1, #kept do
    if kept[i] then
      return false
    end
  end
  local others = redis.call('ZCOUNT', keys.due, rows[first].due, rows[last].due) > 0
  local values, scores, shared, marked = {}, {}, {}, {}
  for i = 1, #rows do
    local row, id, due = rows[i], ids[i], dues[i]
    values[2 * i - 1], values[2 * i], scores[2 * i - 1], scores[2 * i] = id, row.body, row.due, id
    local is_shared = due == dues[i - 1] or shared[due]
    is_shared = is_shared or others and redis.call('ZCOUNT', keys.due, row.due, row.due) > 0
    if is_shared or needs_mark(id, row.priority, row.body) then
      marked[#marked + 1] = i
    end
    if not is_sorted then
      shared[due] = true
    end
  end
  for n, mark in ipairs(new_marks(keys.notes, #marked)) do
    local i = marked[n]
    values[2 * i], scores[2 * i] = mark .. rows[i].priority .. rows[i].body, mark .. ids[i]
  end
  redis.call('HSET', keys.bodies, unpack(values))
  redis.call('ZADD', keys.due, unpack(scores))
  return true
end

-- Stores messages, each as `put` does; again: as in `put`. Fields of a row: id, due, priority, body. Returns how many
-- were offered, repeated and renamed, by these words. Cost O(log N) a message.
local function put_all(keys, rows, again)
  local count = { offered = 0, repeated = 0, renamed = 0 }
  if #rows > 1 and put_new(keys, rows) then
    count.offered = #rows
    return count
  end
  for i = 1, #rows do
    local row = rows[i]
    local state = put(keys, row.id, row.due, row.priority, row.body, again)
    count[state] = count[state] + 1
  end
  return count
end
