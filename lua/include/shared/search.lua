-- @include find

-- Looks for the messages of some ids, until about `bytes` are found, and calls `act`, if given, with each message.
-- Returns for each id searched, in order, a list with four items a message: id, due, priority, body.
-- Cost O(log N) an id.
local function search(keys, ids, count, bytes, act)
  local reply, size = {}, 0
  for i, id in ipairs(ids) do
    if size >= bytes then
      break
    end
    local rows = {}
    for _, message in ipairs(find(keys, id, count)) do
      if act then
        act(keys, message)
      end
      for _, part in ipairs({ message.id, message.due, message.priority, message.body }) do
        rows[#rows + 1] = part
      end
      size = size + #message.body
    end
    reply[i] = rows
  end
  return reply
end
