-- One task once while it waits.
-- @include announce duplicates find lifetime put

-- Stores a message unless messages of its id wait ('keep'), or in place of those ('replace'). Fields of `once`: mode,
-- count (how many duplicates of an id to replace at most), and gone (a list that gets the priority and the body of each
-- message that is replaced) or nil. Fields of a row: id, due, priority, body. Returns 'added', 'kept', 'replaced', or
-- 'repeated' if just this message waits. Cost O(log N).
local function put_once(keys, once, row)
  local waiting, content = find(keys, row.id, once.count), unsigned(row.body)
  for _, message in ipairs(waiting) do
    if message.priority == row.priority and unsigned(message.body) == content then
      return 'repeated'
    end
  end
  if #waiting == 0 then
    put(keys, row.id, row.due, row.priority, row.body)
    return 'added'
  elseif once.mode == 'keep' then
    return 'kept'
  end
  for i, message in ipairs(waiting) do
    if once.gone then
      table.insert(once.gone, message.priority .. message.body)
    end
    if i > 1 then
      remove(keys, message)
    end
  end
  waiting[1].priority = row.priority
  replace(keys, waiting[1], row.due, row.body)
  return 'replaced'
end

-- Does so with messages of one queue, also with those that are due now. Fields of `to`: keys, wake, queue, and expire
-- (x-expires in ms) where it is known. Returns the reply of `announce`, and a word for each. Cost O(log N) a message.
local function put_all_once(to, now, once, rows)
  local life, words = life_of(to.keys, now, to.expire or 0), {}
  local place = announce(to.keys, to.wake, to.queue, function()
    for i, row in ipairs(rows) do
      words[i] = put_once(to.keys, once, row)
    end
  end)
  live_on(to.keys, life, now)
  return place, words
end
