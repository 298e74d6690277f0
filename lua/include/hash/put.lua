-- @include duplicates large marks

-- Whether the queue has duplicates; nil until the call has read it.
local has_duplicates

-- Whether this message waits as a duplicate. It may do so although nothing is stored under its id: the first message of
-- that id has left. Cost O(1), and in a queue with duplicates one SHA-1 of the message.
local function waits_as_duplicate(keys, id, priority, body)
  if has_duplicates == nil then
    has_duplicates = redis.call('ZCARD', keys.ids) > 0
  end
  return has_duplicates and redis.call('HGET', keys.bodies, duplicate_of(id, priority, body))
end

-- Stores a message under its id. The same message is stored once; another one under a taken id becomes a duplicate.
-- again: true to store the same message as one more. Returns 'offered', 'repeated' or 'renamed'. Cost O(log N).
local function put(keys, id, due_ms, priority, body, again)
  local mark, value, state = '', body, 'offered'
  if not again and waits_as_duplicate(keys, id, priority, body) then
    return 'repeated'
  end
  if needs_mark(id, priority, body) or redis.call('ZCOUNT', keys.due, due_ms, due_ms) > 0 then
    mark = new_mark(keys.notes)
    value = mark .. priority .. body
  end
  if redis.call('HSETNX', keys.bodies, id, value) == 0 then
    local kept_priority, kept = opened(redis.call('HGET', keys.bodies, id))
    local duplicate = duplicate_of(id, priority, body)
    if unsigned(kept) == unsigned(body) and kept_priority == priority or redis.call('HGET', keys.bodies, duplicate) then
      if not again then
        return 'repeated'
      end
      duplicate = duplicate_of(id, priority, body .. new_mark(keys.notes))
    end
    id = duplicate
    redis.call('HSETNX', keys.bodies, id, value)
    state = 'renamed'
  end
  if state == 'renamed' or is_keyed(id) then
    redis.call('ZADD', keys.ids, 0, id)
    has_duplicates = true
  end
  redis.call('ZADD', keys.due, due_ms, mark .. id)
  note_large(keys, body)
  return state
end
