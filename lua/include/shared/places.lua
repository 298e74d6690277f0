-- What a delivery tag holds beside its message: a place, which limits how many messages of its kind are in hand. There
-- are none without a feature that has an include of this name.

-- Returns a function that gives up the place of a delivery tag, and returns whether it had one; nil while no tag has
-- any. With a message, that is the next one of its kind, and the function returns true where it is kept so.
local function places_in()
  return nil
end

-- Gives up the places of all tags of a consumer.
local function leave_places() end
