-- Whether a queue may have messages so large that a transfer must not read many at once.
-- @include order
local LARGE = 16000

local function has_large(keys)
  return number_in(keys.order) >= SEEN
end

-- Notes what a message that is stored may make of it. Cost O(1).
local function note_large(keys, body)
  if #body > LARGE and not has_large(keys) then
    set_number(keys.order, number_in(keys.order) + SEEN)
  end
end

-- Notes that there are no messages any more.
local function forget_large(keys)
  set_number(keys.order, number_in(keys.order) - SEEN)
end
