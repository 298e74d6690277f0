-- Puts messages of one queue into the store unless messages of their ids wait there, or in place of those.
-- KEYS[1] due     ZSET         message -> due time, ms since the epoch
-- KEYS[2] bodies  HASH|LIST    bodies of the messages
-- KEYS[3] notes   STRING|HASH  count of messages marked, and more
-- KEYS[4] ids     ZSET|HASH    ids of duplicates, or index of messages by id
-- ARGV[1] wake    channel on which a new head is announced
-- ARGV[2] queue   name, as announced
-- ARGV[3] expire  ms after which an unused queue expires, 0 for never
-- ARGV[4] mode    'keep' where a message of the id waits, or 'replace' it
-- ARGV[5] count   how many duplicates of an id to replace at most
-- ARGV[6...] four a message: id, due (ms since the epoch, or '+' and ms from now), priority (0-9), body
-- Returns {'first' | 'head' | 'behind', {for each message: 'added', 'kept', 'replaced', or 'repeated' if just this
-- message waits}}
-- Atomic: of an id that waits, one message waits when this returns, and a new head has been announced.
-- Cost: O(log N) a message
-- @include announce clock duplicates find lifetime put wrong_type

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local wake, queue, expire = ARGV[1], ARGV[2], tonumber(ARGV[3])
local mode, count, now = ARGV[4], ARGV[5], now_ms()

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end

local function offer_once(id, due_ms, priority, body)
  local waiting, content = find(keys, id, count), unsigned(body)
  for _, message in ipairs(waiting) do
    if message.priority == priority and unsigned(message.body) == content then
      return 'repeated'
    end
  end
  if #waiting == 0 then
    put(keys, id, due_ms, priority, body)
    return 'added'
  elseif mode == 'keep' then
    return 'kept'
  end
  for i = 2, #waiting do
    remove(keys, waiting[i])
  end
  waiting[1].priority = priority
  replace(keys, waiting[1], due_ms, body)
  return 'replaced'
end

local life, words = life_of(keys, now, expire), {}
local place = announce(keys, wake, queue, function()
  for i = 6, #ARGV, 4 do
    words[#words + 1] = offer_once(ARGV[i], at(ARGV[i + 1], now), ARGV[i + 2], ARGV[i + 3])
  end
end)
live_on(keys, life, now)
return { place, words }
