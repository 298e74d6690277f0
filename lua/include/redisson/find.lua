-- Finds messages by their ids, and changes those found.
-- @include duplicates put records remove

-- Returns the waiting messages of an id, 1 + `count` at most. Fields of a message: id, own (the id that the messages
-- share), record, member, due, priority, body. All but the first are duplicates. Cost O(log N) a message found.
local function find(keys, id, count)
  local found = {}
  for i, message in ipairs(waiting_of(keys, id, redis.call('HGET', keys.ids, field_of(id)), count + 1)) do
    message.id = i == 1 and id or duplicate_of(id, message.priority, message.body)
    found[i] = message
  end
  if #found == 0 and may_be_duplicate(id) then
    local shared = string.sub(id, 1, -DUPLICATE_SUFFIX - 1)
    local messages = waiting_of(keys, shared, redis.call('HGET', keys.ids, field_of(shared)))
    for i = #messages, 1, -1 do -- backwards: the first message matches only if it was a duplicate and is now the first
      if duplicate_of(shared, messages[i].priority, messages[i].body) == id then
        messages[i].id = id
        return { messages[i] }
      end
    end
  end
  return found
end

-- Returns the waiting message that has exactly this id, with the fields that `find` gives it, or nil. Cost O(log N).
local function stored(keys, id)
  return find(keys, id, 0)[1]
end

-- Removes a message that was found. Cost O(log N).
local function remove(keys, message)
  remove_entries(keys, { message.member }, { message.own })
end

-- Gives a message that was found another due time and another body. It keeps its place among the messages of its id.
-- Cost O(log N).
local function replace(keys, message, due_ms, body)
  local records = redis.call('HGET', keys.ids, field_of(message.own))
  for first = 1, #records, RECORD do
    if string.sub(records, first, first + RECORD - 1) == message.record then
      local before, behind = string.sub(records, 1, first - 1), string.sub(records, first + RECORD)
      add(keys, message.own, due_ms, message.priority, body, before, behind)
      break
    end
  end
  remove(keys, message)
end
