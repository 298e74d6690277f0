-- @include find

-- Looks for the messages of some ids, until about `bytes` are found, and does `act`, if given, with each.
-- Returns for each id searched, in order: id, due, priority, body of each of its messages in turn.
local function search(keys, ids, count, bytes, act)
  local reply, size = {}, 0
  for i, id in ipairs(ids) do
    if size >= bytes then
      break
    end
    local told = {}
    for _, message in ipairs(find(keys, id, count)) do
      if act then
        act(keys, message)
      end
      for _, part in ipairs({ message.id, message.due, message.priority, message.body }) do
        told[#told + 1] = part
      end
      size = size + #message.body
    end
    reply[i] = told
  end
  return reply
end
