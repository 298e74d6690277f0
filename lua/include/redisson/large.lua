-- Whether a queue may have messages so large that a transfer must not read many at once. Only our own messages count:
-- other clients do not note the size of theirs.
local LARGE = 16000

local function has_large(keys)
  return redis.call('HGET', keys.notes, 'large') ~= false
end

-- Notes that the queue may have large messages, if this body is large. Cost O(1).
local function note_large(keys, body)
  if #body > LARGE then
    redis.call('HSET', keys.notes, 'large', 1)
  end
end

-- Does nothing: `notes` leaves with the last message.
local function forget_large() end
