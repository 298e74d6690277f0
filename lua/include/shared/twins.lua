-- A twin is stored beside another message of the same id, under id .. '~' .. 16 hex digits made from its content.
local TILDE, TWIN_SUFFIX = 126, 17

local function twin_of(id, priority, body)
  return id .. '~' .. string.sub(redis.sha1hex(priority .. body), 1, 16)
end

-- Some ids of other messages look like that too.
local function may_be_twin(id)
  return string.byte(id, -TWIN_SUFFIX) == TILDE
end
