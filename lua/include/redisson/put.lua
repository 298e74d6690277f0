-- @include duplicates entry index_watermark large records zset

-- With how many messages of its id a new one is compared.
local COMPARED = 100

-- Returns the waiting messages of an id, `count` at most. Fields of a message: own (the id), record, member, due,
-- priority, body. records: the value of that id in `ids`. Cost O(log N) a record.
local function waiting_of(keys, id, records, count)
  local found = {}
  for _, record in ipairs(records_of(records)) do
    local entry = #found ~= count and locate(keys.due, record.due, record.mark)
    local body = entry and message_of(entry)
    if body then
      local message = { own = id, record = record.bytes, member = entry, due = record.due, body = body }
      message.priority = priority_of(entry, body)
      found[#found + 1] = message
    end
  end
  return found
end

-- Adds a message. before, behind: records of the other messages of its id, as for `index`. A due time is rounded up to
-- whole ms, and to 0 if it is negative, because Redisson reads such times only. Cost O(log N).
local function add(keys, id, due_ms, priority, body, before, behind)
  local due = string.format('%.0f', math.max(math.ceil(tonumber(due_ms)), 0))
  local entry = new_entry(keys, priority, body)
  redis.call('ZADD', keys.due, due, entry)
  redis.call('RPUSH', keys.bodies, entry)
  index(keys, id, before, due, entry, body, behind)
  note_large(keys, body)
  added.entries[entry], added.count, added.tail = true, added.count + 1, mark_of(entry)
end

-- Stores a message. The same messages of an id are stored once if fewer than COMPARED others came between; with `again`
-- they are stored every time. Returns 'offered', 'repeated' or 'renamed'. Cost O(log N).
local function put(keys, id, due_ms, priority, body, again)
  local records = redis.call('HGET', keys.ids, field_of(id)) or ''
  if not again and records ~= '' then
    local latest = string.sub(records, -COMPARED * RECORD)
    local kept = { string.sub(records, 1, #records - #latest) }
    local content = unsigned(body)
    for i, message in ipairs(waiting_of(keys, id, latest, COMPARED)) do
      if message.priority == priority and unsigned(message.body) == content then
        return 'repeated'
      end
      kept[i + 1] = message.record
    end
    records = table.concat(kept)
  end
  add(keys, id, due_ms, priority, body, records)
  return records == '' and 'offered' or 'renamed'
end
