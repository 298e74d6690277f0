-- Gives keys of a queue their turns by the limits that hold now, and corrects what is noted of them.
-- KEYS places  HASH  delivery tag -> where its place is
-- ARGV base    how the keys of the queue's sub-queues begin
-- ARGV cursor  where the caller is, '0' at first
-- ARGV count   NUMBER  how many keys to look at, about
-- ARGV names...  of the keys to look at; all without any
-- Returns {cursor for the next call, '0' at the end; number of keys whose number of running or waiting was wrong}
-- Atomic: what is noted of a key is as the messages and places are.
-- Cost: O(places + keys * log N)
-- @include checked_sub_queues clock key_limit key_turn places_of sub_queue

local wrong = wrong_sub(places, base)
if wrong then
  return wrong
end
local sub, corrected, found = sub_queues(base, now_ms()), 0, { cursor, names }
if not sub.is_on then
  return { '0', 0 }
end
-- A full Redis refuses a script whose first write needs memory, and lets later writes pass.
redis.call('HDEL', places, '')
end_rests(sub)
if #names == 0 then
  found = redis.call('HSCAN', base .. ':known', cursor, 'COUNT', count)
end
local limit, running = limits_by_key(places .. ':limits'), places_of(places, base)
for i = 1, #found[2], #names > 0 and 1 or 2 do
  local name = found[2][i]
  if name ~= META then
    local key = key_in(sub, name)
    local waiting = redis.call('ZLEXCOUNT', base .. ':parked', '[' .. name .. '\0', '(' .. name .. '\1')
    if key.waiting ~= waiting or key.running ~= (running[name] or 0) then
      corrected = corrected + 1
    end
    key.waiting, key.running, key.bound = waiting, running[name] or 0, limit(name).bound
    enter(sub, name)
  end
end
if redis.call('ZCARD', base .. ':turns') > 0 then
  wake_idle(sub)
end
write_back(sub)
return { #names == 0 and found[1] or '0', corrected }
