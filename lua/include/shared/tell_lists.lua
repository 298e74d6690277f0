-- Tells consumers which lists have messages: publishes the names as they are, a blank, and 1 or 0 for each list. Where
-- Redis refuses that, they hear nothing and look for themselves.
-- told: the channel. listed: names of the lists, as JSON; empty for none. keys: with the lists from a place on.
-- Cost O(lists).
local function tell_lists(told, listed, keys, from)
  local there = {}
  for i = from, #keys do
    local found = redis.pcall('EXISTS', keys[i])
    if type(found) == 'table' then
      return
    end
    there[#there + 1] = found
  end
  if listed ~= '' then
    redis.pcall('PUBLISH', told, listed .. ' ' .. table.concat(there))
  end
end
