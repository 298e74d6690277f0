-- What consumers hold beside their messages. There is none without a feature that has an include of this name.

-- Gives up places of tags of consumers. Returns a set of those that have more.
local function leave_places()
  return {}
end
