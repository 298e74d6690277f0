-- The index of messages by id, beside Redisson's keys. HASH: id -> records, one for each message of that id. A record
-- is the due time and the mark of the message's entry. An id that begins with a 0 byte has ODD before it. Tasks of one
-- waiting key have their records under the key.
-- Messages of other clients get a record when somebody looks for an id. A message that another client removes or
-- transfers leaves its record behind; `forget` removes it later.
-- @include duplicates entry names
local ODD, RECORD = '\0i', LENGTH + MARK

local function field_of(id)
  id = waiting_key(id)
  return string.byte(id) == 0 and ODD .. id or id
end

local function record_of(due_ms, entry)
  return struct.pack('d', tonumber(due_ms)) .. mark_of(entry)
end

-- Returns the records in a value. Fields of a record: bytes, due, mark.
local function records_of(value)
  local records = {}
  for first = 1, value and #value or 0, RECORD do
    local record = string.sub(value, first, first + RECORD - 1)
    local due_ms = string.format('%.17g', struct.unpack('d', record))
    records[#records + 1] = { bytes = record, due = due_ms, mark = string.sub(record, LENGTH + 1) }
  end
  return records
end

-- Notes where a message of an id is. before: records of the messages of that id before it; behind: records of those
-- behind it, or nil. Cost O(1).
local function index(keys, id, before, due_ms, entry, message, behind)
  redis.call('HSET', keys.ids, field_of(id), before .. record_of(due_ms, entry) .. (behind or ''))
  if own_name(entry, message) ~= id then
    redis.call('HSET', keys.ids, NAMED .. mark_of(entry), id)
  end
end

-- Whether the index has an entry with this due time. Also returns the records of the other messages of its id.
-- Cost O(number of records).
local function is_indexed(keys, id, due_ms, entry)
  local others, is_known = {}, false
  for _, record in ipairs(records_of(redis.call('HGET', keys.ids, field_of(id)))) do
    if record.mark ~= mark_of(entry) then
      others[#others + 1] = record.bytes
    else -- another client may have given the entry another due time
      is_known = is_known or tonumber(record.due) == tonumber(due_ms)
    end
  end
  return is_known, table.concat(others)
end
