-- Removes all messages from the sub-queues of a queue.
-- KEYS places  HASH  delivery tag -> where its place is
-- ARGV base  how the keys of the queue's sub-queues begin
-- Returns number of messages removed
-- Atomic: all or none. Tasks that run keep their places.
-- Cost: O(places); Redis frees the memory in the background
-- @include checked_sub_queues clock places_of sub_queue

local wrong = wrong_sub(places, base)
if wrong then
  return wrong
end
local count, was_on = redis.call('ZCARD', base .. ':parked'), sub_queues(base, 0).is_on
redis.call('UNLINK', base .. ':parked', base .. ':turns', base .. ':known')
if was_on then
  local sub = sub_queues(base, now_ms())
  for name, running in pairs(places_of(places, base)) do
    key_in(sub, name).running = running
  end
  write_back(sub)
end
return count
