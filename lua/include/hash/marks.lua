-- What is beside the id and the body of the messages that need it: one due in the same instant as another, and one
-- with a priority other than 0. Index member: MARK .. order .. id; value: MARK .. order .. priority .. body.
-- order, 8 hex digits, grows with every marked message, and MARK sorts after the ids that go without: so members of
-- one due time sort as they were published. Most go without, because Lua takes 1 µs to hash a new string of 1 KB.
-- Source: docs/design.md "Data in Redis".
local MARK, MARK_BYTE, ORDER_END = '\127', 127, 9

local function is_marked(text)
  return string.byte(text) == MARK_BYTE
end

local function needs_mark(id, priority, body)
  return priority ~= '0' or (string.byte(id) or 0) >= MARK_BYTE or is_marked(body)
end

local function new_mark(order_key)
  return MARK .. string.format('%08x', redis.call('INCR', order_key) % 4294967296)
end

-- Returns the id of an index member.
local function id_of(member)
  return is_marked(member) and string.sub(member, ORDER_END + 1) or member
end

-- Returns the index member of the message that is stored as `value` under an id.
local function member_of(id, value)
  return is_marked(value) and string.sub(value, 1, ORDER_END) .. id or id
end

-- Returns the order of a marked value.
local function order_of(value)
  return tonumber(string.sub(value, 2, ORDER_END), 16)
end

-- Returns priority and body of a value. A damaged mark must not keep a queue from being transferred.
local function opened(value)
  if is_marked(value) then
    local priority = string.sub(value, ORDER_END + 1, ORDER_END + 1)
    return tonumber(priority) and priority or '0', string.sub(value, ORDER_END + 2)
  end
  return '0', value
end
