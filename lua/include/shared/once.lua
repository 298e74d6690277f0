-- One task once while it waits.
-- @include announce doomed duplicates find lifetime put

-- Returns the first of some messages that can still run, or nil.
local function alive_of(messages, now)
  for _, message in ipairs(messages) do
    if not is_doomed(message, now) then
      return message
    end
  end
end

-- Stores a message unless messages of its id or waiting key wait ('keep'), or in place of those ('replace'). One that
-- has expired keeps nothing out. Fields of `once`: mode, count (how many duplicates of an id to replace at most), and
-- gone (a list that gets the priority and the body of each message that goes) or nil. Fields of a row: id, due,
-- priority, body. Returns 'added', 'kept', 'replaced', or 'repeated' if just this message waits; and the id of the task
-- that waits. Cost O(log N).
local function put_once(keys, once, row, now)
  local waiting, content = find(keys, waiting_key(row.id), once.count), unsigned(row.body)
  for _, message in ipairs(waiting) do
    if message.priority == row.priority and unsigned(message.body) == content then
      return 'repeated', row.id
    end
  end
  local alive = alive_of(waiting, now)
  if alive and once.mode == 'keep' then
    local is_own = is_keyed(alive.id) or #alive.id == #waiting_key(row.id) -- else it has the suffix of a duplicate
    return 'kept', is_own and alive.id or string.sub(alive.id, 1, -DUPLICATE_SUFFIX - 1)
  end
  for _, message in ipairs(waiting) do
    if once.gone then
      table.insert(once.gone, message.priority .. message.body)
    end
    remove(keys, message)
  end
  put(keys, row.id, row.due, row.priority, row.body)
  return alive and 'replaced' or 'added', row.id
end

-- Does so with messages of one queue, also with those that are due now. Fields of `to`: keys, wake, queue, and expire
-- (x-expires in ms) where it is known. Returns the reply of `announce`, and a word and an id for each, as `put_once`.
-- Cost O(log N) a message.
local function put_all_once(to, now, once, rows)
  local life, words, ids = life_of(to.keys, now, to.expire or 0), {}, {}
  local place = announce(to.keys, to.wake, to.queue, function()
    for i, row in ipairs(rows) do
      words[i], ids[i] = put_once(to.keys, once, row, now)
    end
  end)
  live_on(to.keys, life, now)
  return place, words, ids
end
