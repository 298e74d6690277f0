-- Takes dead letters out of their list, wherever they stand in it; all others stay where they are.
-- KEYS dead  LIST  dead letters
-- ARGV counts  key of the counters of the queue of dead letters
-- ARGV letters...  {older, message, counter}  the newest first: how many are older; the message as it is in the list;
-- the counter, 'replay' where the caller has sent it to its queue already, or 'drop'
-- Returns for each dead letter 1, or 0 if another caller took it
-- Atomic: takes no other letter.
-- Cost: O(N) for all together: Redis passes by the letters between one end of the list and the last that it takes
-- @include counters

-- Takes the place of letters that leave, so that one LREM finds them all. It is no message.
local TAKEN = '\0taken'

local marked, newest, by, reply = 0, 0, {}, {}

local function take(older, message)
  local at = -1 - older
  if redis.call('LINDEX', dead, at) == message and redis.pcall('LSET', dead, at, TAKEN).ok then
    marked, newest = marked + 1, math.max(newest, older)
    return 1
  end
  return redis.call('LREM', dead, -1, message) -- another caller took older ones; or Redis is full, and refuses LSET
end

for i, letter in ipairs(letters) do
  reply[i] = take(tonumber(letter.older), letter.message)
  by[letter.counter] = (by[letter.counter] or 0) + reply[i]
end
if marked > 0 then
  local from_head = 2 * newest > redis.call('LLEN', dead)
  redis.call('LREM', dead, from_head and marked or -marked, TAKEN)
end
count_for_a_while(counts, by)
return reply
