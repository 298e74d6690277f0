-- Puts the messages of an in-flight list back to the end of their list where they are next. The caller may have written
-- already, so an error leaves them where they are.
-- Cost O(messages).
local function put_back(in_flight, ready)
  -- Needs no memory, so that a full Redis lets the later writes of the script pass.
  local reply = redis.pcall('LTRIM', in_flight, 0, -1)
  while reply and not reply.err do
    reply = redis.pcall('LMOVE', in_flight, ready, 'LEFT', 'RIGHT')
  end
end
