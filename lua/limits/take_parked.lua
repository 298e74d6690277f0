-- Takes messages out of the sub-queues of a queue.
-- KEYS places  HASH  delivery tag -> where its place is
-- ARGV base  how the keys of the queue's sub-queues begin
-- ARGV members...  of the sub-queues
-- Returns {1 for each that was there, else 0}
-- Atomic: of several callers, one takes a message.
-- Cost: O(members log N)
-- @include checked_sub_queues clock key_turn sub_queue

local wrong = wrong_sub(places, base)
if wrong then
  return wrong
end
local sub, taken = sub_queues(base, now_ms()), {}
for number, member in ipairs(members) do
  taken[number] = redis.call('ZREM', base .. ':parked', member)
  if taken[number] == 1 then
    local name = string.match(member, '^[^%z]*')
    key_in(sub, name).waiting = math.max(0, key_in(sub, name).waiting - 1)
    enter(sub, name)
  end
end
if next(sub.keys) then
  write_back(sub)
end
return taken
