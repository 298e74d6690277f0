-- Puts the next step of a delay chain into the store, unless this or a later step waits.
-- KEYS keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV wake, queue  channel on which a new head is announced, and the name of the queue there
-- ARGV expire       NUMBER  ms after which an unused queue expires, 0 for never
-- ARGV chain        text that the body of every step of the chain contains, and no other body
-- ARGV id
-- ARGV due          ms since the epoch, or '+' and ms from now
-- ARGV priority     0-9
-- ARGV body
-- ARGV stores       FLAG    not for a step that waits elsewhere, which the store does not get
-- Returns 'first' | 'head' | 'behind' when the store has the step now, or need not; 'waits' with nothing stored
-- Atomic: at any moment at most one step of a chain waits.
-- Cost: O(log N)
-- @include announce clock find lifetime parts put

local now = now_ms()

-- Returns the number of a message's step in its chain; 0 for a message that is no JSON.
local function position(message)
  return tonumber(parts_of(message).retries or 0) or 0
end

local life, waits = life_of(keys, now, expire), false
for _, message in ipairs(find(keys, id, 100)) do
  if string.find(message.body, chain, 1, true) then
    if position(message.body) >= position(body) then
      waits = true
    else
      remove(keys, message) -- an earlier step: the second copy of a run that was delivered twice has sent it
    end
  end
end
if waits then
  return 'waits'
end
local place = 'behind'
if stores then
  place = announce(keys, wake, queue, function()
    put(keys, id, at(due, now), priority, body)
  end)
  live_on(keys, life, now)
end
return place
