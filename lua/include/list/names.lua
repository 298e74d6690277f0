-- The id under which a message was offered. Most messages contain it. For one that does not, the index of ids has a
-- field NAMED .. mark -> id.
-- @include entry
local NAMED = '\0n'

-- Returns the first id that a message names, which is that of a task as Celery writes it, or nil.
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

-- Returns the id that an entry has where no field NAMED says another.
local function own_name(entry, message)
  return is_ours(entry) and named_in(message) or id_of_foreign(entry, message)
end

-- Returns the ids of messages. messages: those in the entries, false where there is none. Cost O(number of entries).
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
