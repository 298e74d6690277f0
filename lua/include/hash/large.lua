-- Whether a queue may have messages so large that a transfer must not read many at once.
-- @include marks
local LARGE = 16000

local function has_large(keys)
  return number_in(keys.notes) >= SEEN
end

-- Notes that the queue may have large messages, if this body is large. Cost O(1).
local function note_large(keys, body)
  if #body > LARGE and not has_large(keys) then
    set_number(keys.notes, number_in(keys.notes) + SEEN)
  end
end

-- Notes that the queue has no large message any more.
local function forget_large(keys)
  set_number(keys.notes, number_in(keys.notes) - SEEN)
end
