-- Returns what decides which messages a fetch gets. Without a feature that has an include of this name, it gets them as
-- they come, and that is nil.
local function gate_of()
  return nil
end
