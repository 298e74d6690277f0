-- @include large marks put

-- Most messages that a few commands store: Lua cannot unpack more than 8,000 values.
local AT_ONCE = 2000

-- Does what `put_all` does, where nothing is out of the ordinary: the queue has no duplicates, no id is taken, no
-- message needs a mark or is large, and no two are due in the same instant. Returns whether it did; if not, nothing has
-- changed. Cost O(log N) a message.
local function put_new(keys, rows)
  if #rows > AT_ONCE or redis.call('ZCARD', keys.ids) > 0 then
    return false
  end
  local ids, values, scores, seen, first, last = {}, {}, {}, {}, nil, nil
  for i = 1, #rows do
    local row = rows[i]
    local id, body, due = row.id, row.body, tonumber(row.due)
    if seen[id] or seen[due] or #body > LARGE or needs_mark(id, row.priority, body) then
      return false
    end
    seen[id], seen[due] = true, true
    ids[i], values[2 * i - 1], values[2 * i], scores[2 * i - 1], scores[2 * i] = id, id, body, row.due, id
    first = (not first or due < tonumber(first)) and row.due or first
    last = (not last or due > tonumber(last)) and row.due or last
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
