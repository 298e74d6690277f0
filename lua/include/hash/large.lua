-- Whether a queue may have messages so large that a transfer must not read many at once.
-- @include marks
local LARGE = 16000

local function has_large(keys)
  return number_in(keys.notes) >= SEEN
end

-- Notes that there are large messages, where the body that is stored is one. Cost O(1).
local function note_large(keys, body)
  if #body > LARGE and not has_large(keys) then
    set_number(keys.notes, number_in(keys.notes) + SEEN)
  end
end

-- Notes that there are none any more.
local function forget_large(keys)
  set_number(keys.notes, number_in(keys.notes) - SEEN)
end
