-- What a delivery tag holds beside its message: a place, which limits how many messages of its kind are in hand. There
-- are none without a feature that has an include of this name.

-- Returns two functions; nil while no tag has a place. The first gives up the place of a delivery tag, and returns
-- whether it had one; with a message, that is the next one of its kind, and it returns true where it is kept so. The
-- second ends that, and is called after all.
local function places_in()
  return nil
end
