-- Puts the messages of a landing list back to the end of their list where they are next. The caller may have written
-- already, so an error leaves them where they are.
-- Cost O(messages).
local function put_back(landing, ready)
  -- Needs no memory, so that a full Redis lets the later writes of the script pass.
  local reply = redis.pcall('LTRIM', landing, 0, -1)
  while reply and not reply.err do
    reply = redis.pcall('LMOVE', landing, ready, 'LEFT', 'RIGHT')
  end
end
