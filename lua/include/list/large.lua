-- Whether a queue may have messages so large that a transfer must not read many at once. Messages of other clients are
-- not counted: nobody knows how large they are.
local LARGE = 16000

local function has_large(keys)
  return redis.call('HGET', keys.notes, 'large') ~= false
end

-- Notes that there are large messages, where the body that is stored is one. Cost O(1).
local function note_large(keys, body)
  if #body > LARGE then
    redis.call('HSET', keys.notes, 'large', 1)
  end
end

-- Nothing to do: `notes` leaves with the last message.
local function forget_large() end
