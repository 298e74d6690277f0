-- @include put

-- Stores messages, each as `put` does. Fields of a row: id, due, priority, body. Cost O(log N) a message.
local function put_all(keys, rows)
  for _, row in ipairs(rows) do
    put(keys, row.id, row.due, row.priority, row.body)
  end
end
