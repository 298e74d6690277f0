-- @include large marks put

-- Most messages that a few commands store: Lua cannot unpack more than 8,000 values.
local AT_ONCE = 2000

-- Whether no number is there twice. Cost O(number of numbers).
local function are_different(numbers)
  local seen = {}
  for i = 1, #numbers do
    if seen[numbers[i]] then
      return false
    end
    seen[numbers[i]] = true
  end
  return true
end

-- Does what `put_all` does, where nothing is out of the ordinary: the queue has no duplicates, no id is taken, no
-- message needs a mark or is large, and no two are due in the same instant. Returns whether it did; if not, nothing has
-- changed. Cost O(log N) a message.
local function put_new(keys, rows)
  if #rows > AT_ONCE or redis.call('ZCARD', keys.ids) > 0 then
    return false
  end
  local ids, values, scores, dues, seen, is_sorted = {}, {}, {}, {}, {}, true
  local first, last, earliest, latest = nil, nil, 0, -math.huge
  for i = 1, #rows do
    local row = rows[i]
    local id, body, due = row.id, row.body, tonumber(row.due)
    if seen[id] or #body > LARGE or needs_mark(id, row.priority, body) then
      return false
    end
    seen[id], is_sorted = true, is_sorted and due > latest
    dues[i], ids[i], values[2 * i - 1], values[2 * i], scores[2 * i - 1], scores[2 * i] = due, id, id, body, row.due, id
    if not first or due < earliest then
      first, earliest = row.due, due
    end
    if not last or due > latest then
      last, latest = row.due, due
    end
  end
  if not is_sorted and not are_different(dues) then
    return false
  end
  if redis.call('ZCOUNT', keys.due, first, last) > 0 then
    for i = 1, #rows do
      if redis.call('ZCOUNT', keys.due, rows[i].due, rows[i].due) > 0 then
        return false
      end
    end
  end
  local kept = redis.call('HMGET', keys.bodies, unpack(ids))
  for i = 1, #kept do
    if kept[i] then
      return false
    end
  end
  redis.call('HSET', keys.bodies, unpack(values))
  redis.call('ZADD', keys.due, unpack(scores))
  return true
end

-- Stores messages, each as `put` does. Fields of a row: id, due, priority, body. Cost O(log N) a message.
local function put_all(keys, rows)
  if #rows > 1 and put_new(keys, rows) then
    return
  end
  for i = 1, #rows do
    local row = rows[i]
    put(keys, row.id, row.due, row.priority, row.body)
  end
end
