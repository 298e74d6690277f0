-- Finds messages by their ids, and changes those found.
-- @include duplicates names put records remove

-- Returns at most `most` messages: those that wait under an id, those of its waiting key, and tasks that have the id as
-- their waiting key. Fields of a message: id, own (the id with which it was offered), record, member, due, priority,
-- body. All but the first of an own id are duplicates. Cost O(log N) a message.
local function indexed_as(keys, id, most)
  local found = waiting_of(keys, id, redis.call('HGET', keys.ids, field_of(id)), most)
  local entries, bodies, seen = {}, {}, {}
  for i, message in ipairs(found) do
    entries[i], bodies[i] = message.member, message.body
  end
  for i, own in ipairs(names(keys, entries, bodies)) do
    local message = found[i]
    message.own, message.id = own, seen[own] and duplicate_of(own, message.priority, message.body) or own
    seen[own] = true
  end
  return found
end

-- Returns the waiting messages of an id, as `indexed_as`, 1 + `count` at most. Cost O(log N) a message found.
local function find(keys, id, count)
  if not may_be_duplicate(id) then
    return indexed_as(keys, id, count + 1)
  end
  local found = {}
  for _, message in ipairs(indexed_as(keys, id)) do
    if message.own == id or waiting_key(message.own) == id then
      found[#found + 1] = message
    end
  end
  local shared = string.sub(id, 1, -DUPLICATE_SUFFIX - 1)
  local messages = #found == 0 and indexed_as(keys, shared) or {}
  for i = #messages, 1, -1 do -- backwards: the first message matches only if it was a duplicate and is now the first
    if duplicate_of(shared, messages[i].priority, messages[i].body) == id then
      messages[i].id = id
      return { messages[i] }
    end
  end
  return found
end

-- Returns the waiting message that has exactly this id, with the fields that `find` gives it, or nil.
-- Cost O(log N) a message that `find` finds.
local function stored(keys, id)
  for _, message in ipairs(find(keys, id, math.huge)) do
    if message.id == id then
      return message
    end
  end
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
