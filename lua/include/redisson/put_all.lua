-- @include put

-- Stores messages, each as `put` does; again: as in `put`. Fields of a row: id, due, priority, body. Returns how many
-- were offered, repeated and renamed, by these words. Cost O(log N) a message.
local function put_all(keys, rows, again)
  local count = { offered = 0, repeated = 0, renamed = 0 }
  for _, row in ipairs(rows) do
    local state = put(keys, row.id, row.due, row.priority, row.body, again)
    count[state] = count[state] + 1
  end
  return count
end
