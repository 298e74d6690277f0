-- @include key_turn member sub_queue wrong_type

local HEADER = '"delayq_limit":'
-- Most messages, and about the most bytes, that one fetch sorts of a queue; and most that one command takes.
local SORTED, SORTED_BYTES, PER_CALL = 150, 400000, 50

-- Returns the key of a message, '' without one. Cost O(length).
local function name_of(message)
  local _, last = string.find(message, HEADER, 1, true)
  return last and string.match(message, '^ ?"([%w_.%-:@%%~+,=/]+)"', last + 1) or ''
end

-- Puts messages into the sub-queues of a queue. Fields of a message: name of its key, step, body. Returns by key the
-- member that goes next where none waited before, else false. Cost O(log N) each.
local function park(sub, messages)
  local members, next_ones = {}, {}
  for _, message in ipairs(messages) do
    local name, key = message.name, key_in(sub, message.name)
    sub.number = math.max(sub.number + 1, math.floor(sub.now * 1000))
    local member = parked_member(name, message.step, sub.number, message.body)
    members[#members + 1], members[#members + 2] = 0, member
    if next_ones[name] == nil then
      next_ones[name] = key.waiting == 0 and { step = message.step, member = member }
    elseif next_ones[name] and message.step < next_ones[name].step then
      next_ones[name] = { step = message.step, member = member }
    end
    key.waiting = key.waiting + 1
  end
  for first = 1, #members, 4000 do
    redis.call('ZADD', sub.base .. ':parked', unpack(members, first, math.min(first + 3999, #members)))
  end
  return next_ones
end

-- Sorts messages of a queue's lists into its sub-queues. limit: returns that of a key; lists: {key of one, its step}.
-- Cost O(log N) a message.
local function sort(sub, limit, lists)
  local messages, left, bytes, largest, failed = {}, SORTED, SORTED_BYTES, nil, nil
  for _, list in ipairs(lists) do
    local ready = list[1]
    repeat
      local count = math.min(left, largest and math.min(PER_CALL, math.ceil(bytes / largest)) or 1)
      local found = count > 0 and redis.pcall('RPOP', ready, count) or {}
      failed = failed or found.err and (wrong_type({ [ready] = 'list' }) or found)
      for _, body in ipairs(found) do
        messages[#messages + 1] = { name = name_of(body), step = list[2], body = body }
        largest = math.max(largest or 1, #body)
        bytes = bytes - #body
      end
      left = left - #found
    until #found == 0 or #found < count
  end
  sub.has_more = left <= 0 or bytes <= 0
  for name, next_one in pairs(park(sub, messages)) do
    key_in(sub, name).bound = limit(name).bound
    enter(sub, name, next_one and next_one.member)
  end
  return failed
end

-- Returns the lists of each queue with their steps, those of in-flight messages first, by the base of its keys; and the
-- step of each list.
local function lists_by_base(to)
  local by_base, step_of = {}, {}
  for _, base in ipairs(to.bases) do
    by_base[base] = {}
  end
  for place = 2 * to.flights + 1, #to.lists do
    local behind = place - 2 * to.flights - 1
    step_of[to.lists[place]] = math.floor(behind / to.queues)
    table.insert(by_base[to.bases[to.flights + behind % to.queues + 1]], { to.lists[place], step_of[to.lists[place]] })
  end
  for pair = to.flights, 1, -1 do
    local step = step_of[to.lists[2 * pair]] or 0
    table.insert(by_base[to.bases[pair]], 1, { to.lists[2 * pair - 1], step })
    step_of[to.lists[2 * pair - 1]] = step
  end
  return by_base, step_of
end
