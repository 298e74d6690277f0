-- The id under which a message was offered. Most messages contain that id. For a message that does not, the index of
-- ids has a field NAMED .. mark -> id.
-- @include entry parts
local NAMED = '\0n'

-- Returns the first id in a message, or nil. In a message of Celery that is the id of the task.
local function named_in(message)
  local _, behind = string.find(message, '"id":', 1, true)
  return behind and string.match(message, '^ ?"([^"\\]+)"', behind + 1)
end

-- Returns the id of a message that another client has offered.
local function id_of_foreign(entry, message)
  local headers, properties = parts_of(message)
  for _, id in ipairs({ headers.task and headers.id or '', properties.delivery_tag or '' }) do
    if type(id) == 'string' and id ~= '' then
      return id
    end
  end
  return 'entry-' .. string.gsub(string.sub(entry, 1, LENGTH), '.', function(byte)
    return string.format('%02x', string.byte(byte))
  end)
end

-- Returns the id of an entry for which the index has no field NAMED.
local function own_name(entry, message)
  return is_ours(entry) and named_in(message) or id_of_foreign(entry, message)
end

-- Returns the ids of entries. messages: the message in each entry, or false. Cost O(number of entries).
local function names(keys, entries, messages)
  local fields, ids = {}, {}
  for i, entry in ipairs(entries) do
    fields[i] = NAMED .. mark_of(entry)
  end
  local named = #fields > 0 and redis.call('HMGET', keys.ids, unpack(fields)) or {}
  for i, entry in ipairs(entries) do
    ids[i] = named[i] or own_name(entry, messages[i] or '')
  end
  return ids
end
