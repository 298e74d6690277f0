-- Removes all messages from the sub-queues of a queue.
-- KEYS places  HASH  delivery tag -> where its place is
-- ARGV base  how the keys of the queue's sub-queues begin
-- Returns number of messages removed
-- Atomic: all or none. Tasks that run keep their places, and keys go on resting; without any, no key is left.
-- Cost: O(places); Redis frees the memory in the background
-- @include checked_sub_queues clock places_of sub_queue

local wrong = wrong_sub(places, base)
if wrong then
  return wrong
end
local count, running = redis.call('ZCARD', base .. ':parked'), places_of(places, base)
redis.call('UNLINK', base .. ':parked', base .. ':turns', base .. ':known')
if next(running) or redis.call('EXISTS', base .. ':rests') == 1 then
  local sub = sub_queues(base, now_ms())
  for name, number in pairs(running) do
    key_in(sub, name).running = number
  end
  write_back(sub)
else
  redis.call('UNLINK', base .. ':idle')
end
return count
