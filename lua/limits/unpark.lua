-- Puts messages of the sub-queues of a queue back into its lists, those next that wait for longest.
-- KEYS places    HASH  delivery tag -> where its place is
-- KEYS ready...  LIST  the queue's lists, one a priority step
-- ARGV base    how the keys of the queue's sub-queues begin
-- ARGV cursor  where the caller is, '0' at first
-- ARGV most    NUMBER  messages of each key to put back
-- Returns {cursor for the next call, '0' at the end; number of messages put back}. Keys that are paused keep theirs.
-- Atomic: a message is in a sub-queue or in its list.
-- Cost: O(keys + messages log N)
-- @include checked_sub_queues clock key_limit key_turn member sub_queue

local wrong = wrong_sub(places, base)
if wrong then
  return wrong
end
local sub, back, limit = sub_queues(base, now_ms()), {}, limits_by_key(places .. ':limits')
local found = sub.is_on and redis.call('HSCAN', base .. ':known', cursor, 'COUNT', 20) or { '0', {} }
for i = 1, #found[2], 2 do
  local name = found[2][i]
  if name ~= META and limit(name).bound > 0 then
    for _, member in ipairs(next_in(sub, name, most)) do
      local step, number = order_in(name, member)
      back[#back + 1] = { step = step, number = number, name = name, member = member }
    end
  end
end
table.sort(back, function(one, two)
  return one.number > two.number
end)
for _, row in ipairs(back) do
  local key = key_in(sub, row.name)
  redis.call('ZREM', base .. ':parked', row.member)
  redis.call('RPUSH', ready[row.step + 1], message_in(row.name, row.member))
  key.waiting = key.waiting - 1
  enter(sub, row.name)
end
if #back > 0 then
  write_back(sub)
end
return { found[1], #back }
