-- Marks. They stand before the id and the body of the messages that need one: a message due in the same instant as
-- another, and one with a priority other than 0. Index member: MARK .. order .. id; value: MARK .. order .. priority ..
-- body. The order, 8 hex digits, grows with every marked message, and MARK sorts after the ids without a mark: so
-- members of one due time sort as they were published. Most messages have no mark, because Lua takes 1 µs to hash a new
-- string of 1 KB.
-- Source: docs/design.md "Data in Redis".
local MARK_BYTE, ORDER_END = 127, 9

local byte_of = string.byte

local function is_marked(text)
  return byte_of(text) == MARK_BYTE
end

local function needs_mark(id, priority, body)
  return priority ~= '0' or (byte_of(id) or 0) >= MARK_BYTE or is_marked(body)
end

-- Returns `count` marks, each with the number after that of the one before. Cost O(count).
local function new_marks(notes, count)
  local marks, latest = {}, count > 0 and redis.call('INCRBY', notes, count)
  for n = 1, count do
    marks[n] = string.format('\127%08x', (latest - count + n) % 4294967296)
  end
  return marks
end

local function new_mark(notes)
  return new_marks(notes, 1)[1]
end

-- Returns the id of an index member.
local function id_of(member)
  return is_marked(member) and string.sub(member, ORDER_END + 1) or member
end

-- Returns the ids of index members: the table `members` itself where no member is marked.
local function ids_of(members)
  local ids = members
  for i = 1, #members do
    if byte_of(members[i]) == MARK_BYTE then
      ids = ids == members and { unpack(members) } or ids
      ids[i] = id_of(members[i])
    end
  end
  return ids
end

-- Returns the index member of the message that is stored as `value` under an id.
local function member_of(id, value)
  return is_marked(value) and string.sub(value, 1, ORDER_END) .. id or id
end

-- Returns priority and body of a value. A damaged mark must not keep a queue from being transferred.
local function opened(value)
  if is_marked(value) then
    local priority = string.sub(value, ORDER_END + 1, ORDER_END + 1)
    return tonumber(priority) and priority or '0', string.sub(value, ORDER_END + 2)
  end
  return '0', value
end

-- `notes` has the count of messages marked. Its bit 52, which no count reaches, is set while the queue may have large
-- messages; it disturbs neither INCR nor the count modulo 2^32.
local SEEN = 4503599627370496 -- 2^52

local function number_in(notes)
  return tonumber(redis.call('GET', notes) or 0) or 0
end

local function set_number(notes, number)
  redis.call('SET', notes, string.format('%.0f', number), 'KEEPTTL')
end
