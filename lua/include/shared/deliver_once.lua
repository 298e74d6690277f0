-- @include deliver duplicates find once

-- Returns the rows under whose ids or waiting keys nothing waits, and the others; without `once` all are of the first
-- kind. Cost O(log N) a row.
local function by_waiting(keys, once, rows)
  if not once then
    return rows, {}
  end
  local free, taken = {}, {}
  for _, row in ipairs(rows) do
    local found = find(keys, waiting_key(row.id), 1)[1] and taken or free
    found[#found + 1] = row
  end
  return free, taken
end

-- Does what `deliver` does, with rows as `by_waiting` returns them. Returns its reply too, and how many were kept out
-- and how many took the place of another. Cost O(log N) a message.
local function deliver_once(to, now, once, free, taken)
  local place = #free > 0 and deliver(to, now, free) or 'behind'
  local times = { added = 0, repeated = 0, kept = 0, replaced = 0 }
  if #taken > 0 then
    for _, row in ipairs(taken) do
      row.due = row.due == '' and string.format('%.17g', now) or row.due
    end
    local of_taken, words = put_all_once(to, now, once, taken)
    place = place == 'behind' and of_taken or place
    for _, word in ipairs(words) do
      times[word] = times[word] + 1
    end
  end
  return place, times.kept, times.replaced
end
