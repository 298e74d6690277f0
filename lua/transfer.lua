-- Moves messages that are due to the end of the queue's lists where kombu would have put them.
-- KEYS[1-4] keys  of the queue's delayed messages, see include/*/types.lua
-- KEYS[5...] ready   LIST         the queue's lists, one a priority step
-- ARGV[1] count  how many messages to move at most
-- ARGV[2] bytes  about how many bytes to move at most
-- ARGV[3] counts  key of the queue's counters
-- ARGV[4...13] for each priority 0-9: its list, counted from 0
-- Returns {number moved, number without a body, due time of the first or '', now, next due or ''}
-- Atomic: pushes each message before it removes it; cut short, it may repeat messages and never lose one.
-- Cost: O(log N) a message
-- @include clock large lifetime move due

local count, bytes, counts = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local now = now_ms()

local is_large, expire = has_large(keys), life_of(keys, now, 0).margin
local function list_of(priority)
  return KEYS[5 + ARGV[4 + priority]]
end
local to = { keys = keys, first_list = 5, list_of = list_of, counts = counts, expire = expire, is_large = is_large }
local moved, lost, first = move_due(to, now, count, bytes)
if first and expire > 0 then
  redis.pcall('PEXPIRE', counts, string.format('%.0f', ahead(keys, now) + expire))
end
local head = next_due(keys, now, is_large)
if is_large and not head then
  forget_large(keys)
end
return { moved, lost, first or '', string.format('%.17g', now), head or '' }
