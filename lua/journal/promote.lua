-- Puts rows of the journal that belong to one queue into the store, each once, until they are due.
-- KEYS journal        HASH  marker: id, token, epoch and heartbeat of the journal that this Redis belongs to
-- KEYS journal_guard  HASH  number of a row -> 'p' (pushed), 'c' (claimed) or 'h' (held), since
-- when, ms, and ':' with the name of the hold
-- KEYS keys           of the queue's delayed messages, see include/*/types.lua
-- ARGV wake, queue  channel on which a new head is announced, and the name of the queue there
-- ARGV expire       NUMBER  ms after which an unused queue expires, 0 for never
-- ARGV of           id of the journal
-- ARGV token        of the promoter
-- ARGV hold         name of a hold without which no row is put, of a caller that promotes single rows; '' for a leader
-- ARGV offers...    {number, id, due, priority, body}  one a row; due: ms since the epoch; priority: 0-9
-- Returns {'promoted', then a word for each row: 'promoted', 'pushed' (it was there before), 'claimed' (it was
-- taken out of the journal, and must not be put there) or 'free' (its hold has ended)}; or, with nothing changed,
-- {'lost' | 'other' | 'superseded' | 'behind'}, when the promoter does not lead
-- Atomic: a row is in the guard as pushed if and only if its message has been put into the store.
-- Cost: O(log N) a row
-- @include announce clock fencing lifetime put_all

local now = now_ms()

local word = fenced_off(journal, of, token)
if word then
  return { word }
end
local numbers, rows, reply, noted = {}, {}, { 'promoted' }, {}
for n, offer in ipairs(offers) do
  numbers[n] = offer.number
end
local guarded = #numbers > 0 and redis.call('HMGET', journal_guard, unpack(numbers)) or {}
local since = string.format('%.0f', math.floor(now))
for n, offer in ipairs(offers) do
  local known = guarded[n] or ''
  local kind = string.sub(known, 1, 1)
  if kind == 'p' or kind == 'c' then
    reply[n + 1] = kind == 'p' and 'pushed' or 'claimed'
  elseif hold ~= '' and string.match(known, ':(.*)') ~= hold then
    reply[n + 1] = 'free'
  else
    rows[#rows + 1] = offer
    noted[#noted + 1], noted[#noted + 2] = offer.number, 'p' .. since
    reply[n + 1] = 'promoted'
  end
end
local life = life_of(keys, now, expire)
announce(keys, wake, queue, function()
  put_all(keys, rows)
end)
if #noted > 0 then -- after the messages: a script that is cut short here finds the same bytes when it runs again
  redis.call('HSET', journal_guard, unpack(noted))
  live_on(keys, life, now)
end
return reply
