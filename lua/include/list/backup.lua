-- The backup in Redisson's form: ZSET `due` and LIST `backup` have the same entries. Beside them, `order` is a HASH
-- with the count of messages marked (order), the tail of the list as it was known (tail) and as it was when the latest
-- search for other clients' messages began (sought), and how far records were searched for those to be forgotten
-- (forgotten), and whether there are large messages (large); `twins` is a HASH, the index of messages by id.
-- @include locate
-- @include ids
-- @include remove
-- @include large

-- With how many messages of its id a new one is compared.
local COMPARED = 100

-- Returns the messages of an id that wait, `count` at most: id (its own), record, member, due, priority, body of each.
-- records: of that id. Cost O(log N) a record.
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

-- Adds a message. records, behind: of the others of its id, as of `index`. Due times are rounded up to whole ms from 0
-- on, as Redisson reads them. keys.fresh gets the members that are new, keys.tail the mark of the last. Cost O(log N).
local function add(keys, id, due_ms, priority, body, records, behind)
  local due = string.format('%.0f', math.max(math.ceil(tonumber(due_ms)), 0))
  local entry = new_entry(keys, priority, body)
  redis.call('ZADD', keys.due, due, entry)
  redis.call('RPUSH', keys.backup, entry)
  index(keys, id, records, due, entry, body, behind)
  note_large(keys, body)
  keys.fresh[entry], keys.tail = true, mark_of(entry)
end

-- Stores a message; equal ones of an id are stored once where fewer than COMPARED others came between, or with `again`
-- as often as they come. Returns 'offered', 'repeated' or 'renamed'. Cost O(log N).
local function put(keys, id, due_ms, priority, body, again)
  local records = redis.call('HGET', keys.twins, field_of(id)) or ''
  if not again and records ~= '' then
    local latest = string.sub(records, -COMPARED * RECORD)
    local kept = { string.sub(records, 1, #records - #latest) }
    for i, message in ipairs(waiting_of(keys, id, latest, COMPARED)) do
      if message.body == body and message.priority == priority then
        return 'repeated'
      end
      kept[i + 1] = message.record
    end
    records = table.concat(kept)
  end
  add(keys, id, due_ms, priority, body, records)
  return records == '' and 'offered' or 'renamed'
end
