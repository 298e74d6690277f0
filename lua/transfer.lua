-- Moves messages that are due to the end of the queue's lists where kombu would have put them.
-- KEYS[1]    due     ZSET         message -> due time, ms since the epoch
-- KEYS[2]    bodies  HASH|LIST    bodies of the messages
-- KEYS[3]    notes   STRING|HASH  count of messages marked, and more
-- KEYS[4]    ids     ZSET|HASH    ids of twins, or index of messages by id
-- KEYS[5...] ready   LIST         the queue's lists, one a priority step
-- ARGV[1] count  how many messages to move at most
-- ARGV[2] bytes  about how many bytes to move at most
-- ARGV[3] counts  key of the queue's counters
-- ARGV[4...13] for each priority 0-9: its list, counted from 0
-- Returns {number moved, number without a body, due time of the first or '', now, next due or ''}
-- Atomic: pushes each message before it removes it; cut short, it may repeat messages and never lose one.
-- Cost: O(log N) a message
-- @include batch clock large lateness lifetime take wrong_type

-- A read asks for as many messages as fit the buffer of 16 KB in which Redis gives a script its reply: Redis copies a
-- larger reply once more.
local REPLY, AT_MOST = 15000, 32

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local count, bytes, counts = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local now = now_ms()

local wrong = wrong_stored(keys, 5)
if wrong then
  return wrong
end
local is_large, expire = has_large(keys), life_of(keys, now, 0).margin
local ready = { unpack(KEYS, 5) }
local function list_of(priority)
  return ready[1 + tonumber(ARGV[4 + tonumber(priority)])]
end
local usual, foremost, batch = list_of('0'), ready[1], new_batch()
local moved, lost, ask, first = 0, 0, is_large and 1 or at_first(), nil
local late -- how late messages are, where the first one is not punctual
local function settle_batch()
  local pushed, without = settle(batch, keys, 5, expire)
  moved, lost, batch = moved + pushed, lost + without, new_batch()
end

while count > 0 and bytes > 0 do
  ask = math.min(ask, count)
  local members, bodies, priorities, size, due, last_due = take(keys, now, #batch.members, ask, not first)
  if #members == 0 then
    break
  elseif not first and now - due > PUNCTUAL then
    late = late_by(keys.due, now, tonumber(due), count)
  end
  if late and (last_due or #members < ask or ask == count or size >= bytes) then
    late.last_ms = now - (last_due or redis.call('ZSCORE', keys.due, members[#members]))
  end
  if priorities or #batch.members > 0 or usual ~= foremost then
    hold(batch, members, bodies, priorities, list_of)
  else
    batch = { ready = { [usual] = bodies }, members = members, bodies = bodies, lost = 0 }
  end
  -- Messages for the first list are pushed before those for any other list.
  if leaves_in_parts() and is_for(batch, foremost) then
    settle_batch()
  end
  first, count, bytes = first or due, #members < ask and 0 or count - ask, bytes - size
  ask = is_large and 1 or math.max(1, math.min(4 * #members, math.floor(REPLY * #members / size), AT_MOST))
end
settle_batch()
if late then
  count_late(counts, late, moved)
elseif moved > 0 then
  redis.pcall('HINCRBY', counts, 'late:0', moved)
end
if lost > 0 then
  redis.pcall('HINCRBY', counts, 'lost', lost)
end
if first and expire > 0 then
  redis.pcall('PEXPIRE', counts, string.format('%.0f', ahead(keys, now) + expire))
end
local head = next_due(keys, now, is_large)
if is_large and not head then
  forget_large(keys)
end
return { moved, lost, first or '', string.format('%.17g', now), head or '' }
