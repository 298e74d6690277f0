-- The default backup: the ZSET `due` has the id of each message, the HASH `backup` its body under the id, either
-- with a mark where one is needed.
-- @include marks
-- @include twins
-- @include large

-- Whether a queue has twins, by the key that keeps them, as far as it was asked.
local has_twins = {}

-- Whether a message waits as a twin although nothing is stored under its id: the first of that id has left since.
-- Cost O(1), and in a queue with twins that of a hash of the message.
local function waits_as_twin(keys, id, priority, body)
  local key = keys.twins
  if has_twins[key] == nil then
    has_twins[key] = redis.call('ZCARD', key) > 0
  end
  return has_twins[key] and redis.call('HGET', keys.backup, twin_of(id, priority, body))
end

-- Stores a message under its id; equal bytes are stored once, other bytes under a taken id get their own.
-- keys: due, backup, order, twins; again: whether equal bytes are another message. Returns 'offered', 'repeated' or
-- 'renamed'. Cost O(log N).
local function put(keys, id, due_ms, priority, body, again)
  local mark, value, state = '', body, 'offered'
  if not again and waits_as_twin(keys, id, priority, body) then
    return 'repeated'
  end
  if needs_mark(id, priority, body) or redis.call('ZCOUNT', keys.due, due_ms, due_ms) > 0 then
    mark = new_mark(keys.order)
    value = mark .. priority .. body
  end
  if redis.call('HSETNX', keys.backup, id, value) == 0 then
    local kept_priority, kept = opened(redis.call('HGET', keys.backup, id))
    local twin = twin_of(id, priority, body)
    if kept == body and kept_priority == priority or redis.call('HGET', keys.backup, twin) then
      if not again then
        return 'repeated'
      end
      twin = twin_of(id, priority, body .. new_mark(keys.order))
    end
    id = twin
    redis.call('HSETNX', keys.backup, id, value)
    redis.call('ZADD', keys.twins, 0, id)
    has_twins[keys.twins] = true
    state = 'renamed'
  end
  redis.call('ZADD', keys.due, due_ms, mark .. id)
  note_large(keys, body)
  return state
end
