-- Whether a queue may have messages so large that a transfer must not read many at once. Of those of other clients
-- nobody knows.
local LARGE = 16000

local function has_large(keys)
  return redis.call('HGET', keys.order, 'large') ~= false
end

-- Notes what a message that is stored may make of it. Cost O(1).
local function note_large(keys, body)
  if #body > LARGE then
    redis.call('HSET', keys.order, 'large', 1)
  end
end

-- `order` goes with the last message.
local function forget_large() end
