-- Entries of Redisson's RDelayedQueue: a random id, the length of the message as 8 bytes, the message. An entry is a
-- member of the ZSET and, with the same bytes, an element of the LIST. Up to Redisson 3.20 the id is a double (packed
-- "dLc0"); later versions write 8 bytes, with their number, 8, before them ("Bc0Lc0"). The id of our entries can be
-- read as both: it is a double whose first byte is 7, the number of its other bytes. These are: order (4 bytes, so that
-- entries of one due time sort as they were published), priority, 1, 0. No entry of Redisson has both this first byte
-- and the 0 in that place: its double is a whole number, whose last byte is not 0.
-- Source: docs/design/extras.md "Entries".
-- @include parts
local OURS = 7

-- How many bytes a length has; a double has as many.
local LENGTH = 8

-- How many bytes the mark of an entry has. The mark contains the whole random id, so it is unique in a queue.
local MARK = 9

local function mark_of(entry)
  return string.sub(entry, 1, MARK)
end

local function is_ours(entry)
  return string.byte(entry) == OURS and string.byte(entry, LENGTH) == 0
end

-- Returns the order of a new entry: one more than that of the entry before. Where other clients' entries came first, or
-- the count is lost, the order goes on from the time in s. That is above any lost count, so no waiting entry has it.
local function next_order(keys)
  local order = redis.call('HINCRBY', keys.notes, 'order', 1)
  if order == 1 and redis.call('EXISTS', keys.due) == 1 then
    order = tonumber(redis.call('TIME')[1])
    redis.call('HSET', keys.notes, 'order', order)
  end
  return struct.pack('>I4', order % 4294967296)
end

local function new_entry(keys, priority, body)
  local id = string.char(OURS) .. next_order(keys) .. string.char(tonumber(priority), 1, 0)
  return id .. struct.pack('L', #body) .. body
end

-- Returns the number of bytes before the message in an entry, or nil if the entry has no message.
local function start_of(entry)
  for _, id in ipairs({ (string.byte(entry) or 0) + 1, LENGTH }) do
    local start = id + LENGTH
    if #entry >= start and struct.unpack('L', entry, id + 1) == #entry - start then
      return start
    end
  end
  return nil
end

-- Returns the message in an entry, or false if the entry has none.
local function message_of(entry)
  local start = start_of(entry)
  return start and string.sub(entry, start + 1) or false
end

-- Returns the priority, '0' to '9', of the message in an entry.
local function priority_of(entry, message)
  local priority = 0
  if is_ours(entry) then
    priority = string.byte(entry, 6)
  elseif string.find(message, '"priority"', 1, true) then
    local _, properties = parts_of(message)
    priority = tonumber(properties.priority) or 0
  end
  return priority > 0 and string.format('%d', math.min(priority, 9)) or '0' -- this comparison makes NaN 0, too
end
