-- Twins. A twin is a further message of an id that another message has. Its own id is the shared id .. '~' .. 16 hex
-- digits made from its content.
local TILDE = 126
local TWIN_SUFFIX = 17

local function twin_of(id, priority, body)
  return id .. '~' .. string.sub(redis.sha1hex(priority .. body), 1, 16)
end

-- Whether an id looks like that of a twin; some ids of other messages do.
local function may_be_twin(id)
  return string.byte(id, -TWIN_SUFFIX) == TILDE
end
