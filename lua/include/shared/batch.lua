-- A batch: messages that a transfer has read and not yet pushed to the queue's lists.
-- @include push due

local function new_batch()
  return { ready = {}, members = {}, bodies = {}, lost = 0 }
end

-- Adds messages as `read_due` returns them. list_of: function from a priority to its list. Cost O(number of members).
local function hold(batch, members, bodies, priorities, list_of)
  local ready, held = batch.ready, #batch.members
  for i = 1, #members do
    local body = bodies[i]
    if body then
      local list = list_of(priorities and priorities[i] or '0')
      ready[list] = ready[list] or {}
      table.insert(ready[list], body)
    else
      batch.lost = batch.lost + 1
    end
    batch.members[held + i], batch.bodies[held + i] = members[i], body
  end
end

-- Whether the batch has messages, and all go to this one list.
local function is_for(batch, list)
  return next(batch.ready) == list and not next(batch.ready, list)
end

-- Pushes the messages of a batch, then removes them from the store. lists, expire: as for `push`. Returns the number of
-- messages pushed, and the number without a body. Cost O(log N) a message.
local function push_batch(batch, keys, lists, expire)
  push(batch.ready, lists, expire)
  if #batch.members > 0 then
    drop(keys, batch.members, batch.bodies)
  end
  return #batch.members - batch.lost, batch.lost
end
