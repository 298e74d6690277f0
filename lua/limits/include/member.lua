-- Returns a member of `parked`: a key, NUL, a priority step, 16 digits which order the messages of a step, a message.
local function parked_member(name, step, number, message)
  return name .. '\0' .. step .. string.format('%016.0f', number) .. message
end

-- Returns the priority step of a member of a key's sub-queue, and its 16 digits, as texts.
local function order_in(name, member)
  return string.sub(member, #name + 2, #name + 2), string.sub(member, #name + 3, #name + 18)
end

-- Returns its message. Cost O(length).
local function message_in(name, member)
  return string.sub(member, #name + 19)
end
