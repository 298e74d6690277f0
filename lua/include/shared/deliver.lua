-- @include announce lifetime push put_all

-- Sends messages to one queue: into the store until they are due, or at once to its lists.
-- Fields of `to`: keys, wake, queue, ready (its lists), list_of (function from a priority to its list), and expire
-- (x-expires in ms) where it is known. Fields of a row: id, due ('' or ms since the epoch), priority, body. Returns the
-- reply of `announce`: 'first', 'head' or 'behind'. Cost O(log N) a message.
local function deliver(to, now, rows)
  local ready, later, life = {}, {}, life_of(to.keys, now, to.expire or 0)
  local count = 0
  for i = 1, #rows do
    local row = rows[i]
    local due = row.due
    if due ~= '' and tonumber(due) > now then
      count = count + 1
      later[count] = row
    else
      local list = to.list_of(row.priority)
      ready[list] = ready[list] or {}
      table.insert(ready[list], row.body)
    end
  end
  local place = announce(to.keys, to.wake, to.queue, function()
    put_all(to.keys, later)
  end)
  live_on(to.keys, life, now)
  push(ready, to.ready, to.expire or 0)
  return place
end
