-- Puts messages of one queue into the store, each under its id, until its due time.
-- KEYS[1] due     ZSET    message -> due time, ms since the epoch
-- KEYS[2] backup  HASH    id -> message
-- KEYS[3] order   STRING  count of messages marked so far
-- ARGV[1] wake    channel on which a new head is announced
-- ARGV[2] queue   name, as announced
-- ARGV[3] expire  ms after which an unused queue expires, 0 for never
-- ARGV[4...] four a message: id, due (ms since the epoch, or '+' and ms from now), priority (0-9), body
-- Returns {'first' | 'head' | 'behind', number offered, number repeated, number renamed}
-- Atomic: every message is in the store when this returns, and a new head has been announced.
-- Cost: O(log N) a message
-- @include clock
-- @include wrong_type
-- @include backup
-- @include announce

local keys = { due = KEYS[1], backup = KEYS[2], order = KEYS[3] }
local wake, queue, expire = ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = now_ms()
local count = { offered = 0, repeated = 0, renamed = 0 }

local wrong = wrong_type({ [keys.due] = 'zset', [keys.backup] = 'hash', [keys.order] = 'string' })
if wrong then
  return wrong
end
local place = announce(keys.due, wake, queue, function()
  for i = 4, #ARGV, 4 do
    local id, due, priority, body = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    if string.sub(due, 1, 1) == '+' then
      due = string.format('%.17g', now + tonumber(due))
    end
    local state = put(keys, id, due, priority, body)
    count[state] = count[state] + 1
  end
end)
if expire > 0 then
  for _, key in pairs(keys) do
    redis.call('PEXPIRE', key, expire)
  end
end
return { place, count.offered, count.repeated, count.renamed }
