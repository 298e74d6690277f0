-- A duplicate is a further message of an id that another message has. Its own id is the shared id .. '~' .. 16 hex
-- digits made from its content.
local TILDE = 126
local DUPLICATE_SUFFIX = 17

-- What differs where a call is made again in another thread or process. Its delivery tag is made without it.
local SENDER = { '"origin": "', '"reply_to": "' }

-- Returns a message without the texts of SENDER. Two messages of one id are the same where the rest is equal.
-- Cost O(bytes).
local function unsigned(body)
  for _, name in ipairs(SENDER) do
    local parts, from = {}, 1
    repeat
      local _, last = string.find(body, name, from, true)
      local closing = last and string.find(body, '"', last + 1, true)
      if closing then
        parts[#parts + 1] = string.sub(body, from, last)
        from = closing
      end
    until not closing
    body = table.concat(parts) .. string.sub(body, from)
  end
  return body
end

local function duplicate_of(id, priority, body)
  return id .. '~' .. string.sub(redis.sha1hex(priority .. unsigned(body)), 1, 16)
end

-- Whether an id looks like that of a duplicate; some ids of other messages do.
local function may_be_duplicate(id)
  return string.byte(id, -DUPLICATE_SUFFIX) == TILDE
end

-- A task of a waiting key has the id KEY .. '~k' .. 15 hex digits, which are random. So each task of a key has an id of
-- its own, and is found by its key as a duplicate is by the shared id.
-- Source: kombu_delayq/message/once.py.
local function is_keyed(id)
  return may_be_duplicate(id) and string.find(id, '^k[0-9a-f]+$', 1 - DUPLICATE_SUFFIX) ~= nil
end

-- Returns the waiting key of an id; another id is its own.
local function waiting_key(id)
  return is_keyed(id) and string.sub(id, 1, -DUPLICATE_SUFFIX - 1) or id
end
