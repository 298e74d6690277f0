-- What waits for a consumer apart from a queue's lists. Without a feature that has an include of this name, that is
-- nothing. Returns the number of messages, how many of them may not go now, and some of those that go next. base: how the
-- keys begin. Cost O(1).
local function parked_in()
  return 0, 0, {}
end
