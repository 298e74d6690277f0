-- The index of messages by id beside Redisson's keys. HASH: id -> records, one for each message of that id. A record
-- is the due time and the mark of the message's entry. Where a message does not tell the id under which it was
-- offered, also NAMED .. mark -> id. An id that begins with a 0 byte has ODD before it.
-- Other clients' messages get a record when somebody looks for an id; what other clients remove or transfer leaves
-- its record behind, until its due time is past.
-- @include entry

local NAMED, ODD, RECORD = '\0n', '\0i', LENGTH + MARK

local function field_of(id)
  return string.byte(id) == 0 and ODD .. id or id
end

local function record_of(due, entry)
  return struct.pack('d', tonumber(due)) .. mark_of(entry)
end

-- Returns the records in a value: bytes, due, mark of each.
local function records_of(value)
  local records = {}
  for first = 1, value and #value or 0, RECORD do
    local record = string.sub(value, first, first + RECORD - 1)
    local due = string.format('%.17g', struct.unpack('d', record))
    records[#records + 1] = { bytes = record, due = due, mark = string.sub(record, LENGTH + 1) }
  end
  return records
end

-- Returns the first id that a message names, which is that of a task as Celery writes it.
local function named_in(message)
  local _, behind = string.find(message, '"id":', 1, true)
  return behind and string.match(message, '^ ?"([^"\\]+)"', behind + 1)
end

-- Returns the id of a message that another client has offered.
local function id_of_other(entry, message)
  local of = said(message)
  for _, id in ipairs({ of.headers.task and of.headers.id or '', of.properties.delivery_tag or '' }) do
    if type(id) == 'string' and id ~= '' then
      return id
    end
  end
  return 'entry-' .. string.gsub(string.sub(entry, 1, LENGTH), '.', function(byte)
    return string.format('%02x', string.byte(byte))
  end)
end

-- Returns the ids of messages. messages: of the entries, false where there is none. Cost O(number of entries).
local function names(keys, entries, messages)
  local fields, ids = {}, {}
  for i, entry in ipairs(entries) do
    fields[i] = NAMED .. mark_of(entry)
  end
  local named = #fields > 0 and redis.call('HMGET', keys.twins, unpack(fields)) or {}
  for i, entry in ipairs(entries) do
    local message = messages[i] or ''
    ids[i] = named[i] or is_ours(entry) and named_in(message) or id_of_other(entry, message)
  end
  return ids
end

-- Notes where messages of an id are. records, behind: of the others of that id, those that come before and, if there
-- are any, behind it. Cost O(1).
local function index(keys, id, records, due, entry, message, behind)
  redis.call('HSET', keys.twins, field_of(id), records .. record_of(due, entry) .. (behind or ''))
  local told = is_ours(entry) and named_in(message) or id_of_other(entry, message)
  if told ~= id then
    redis.call('HSET', keys.twins, NAMED .. mark_of(entry), id)
  end
end
