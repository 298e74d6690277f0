-- Messages that are too late to run.
-- @include budget page pick due

-- About the most bytes that a call returns.
local RETURNED_BYTES = 300000

-- Removes messages that were due before `limit`, until there are `count` or about `bytes`, or it takes long. Returns
-- how many, and how many of them had no body. Cost O(log N) a message.
local function drop_late(keys, limit, count, bytes, is_large)
  local dropped, lost, ask, has_time = 0, 0, is_large and 1 or at_first(), time_budget()
  while dropped < count and bytes > 0 do
    local members, bodies, _, size = read_due(keys, limit, 0, math.min(ask, count - dropped))
    if #members == 0 then
      break
    end
    drop(keys, members, bodies)
    for i = 1, #members do
      lost = lost + (bodies[i] and 0 or 1)
    end
    bytes = has_time(#members) and bytes - size or 0
    dropped, ask = dropped + #members, is_large and 1 or 16
  end
  return dropped - lost, lost
end

-- Adds messages that were due before `limit` to a reply, `count` at most: key, due time, priority, body, of which the
-- last two are empty where the body is missing. Cost O(log N + count).
local function add_late(reply, keys, limit, count)
  local members, dues, priorities, bodies = page(keys, 0, count, RETURNED_BYTES)
  for i, member in ipairs(members) do
    if tonumber(dues[i]) < limit then
      for _, part in ipairs({ key_of(member), dues[i], priorities[i] or '', bodies[i] or '' }) do
        reply[#reply + 1] = part
      end
    end
  end
end
