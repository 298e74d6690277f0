-- Moves messages that are due to the end of the queue's lists where kombu would have put them.
-- KEYS keys      of the queue's delayed messages, see include/*/types.lua
-- KEYS ready...  LIST  the queue's lists, one a priority step
-- ARGV most, max_bytes  NUMBER      how many messages, and about how many bytes, to move at most
-- ARGV counts           key of the queue's counters
-- ARGV list_of          PRIORITIES  the queue's lists
-- Returns {number moved, number without a body, due time of the first or '', now, next due or ''}
-- Atomic: pushes each message before it removes it; cut short, it may repeat messages and never lose one.
-- Cost: O(log N) a message
-- @include clock large lifetime move due

local now = now_ms()

local is_large, expire = has_large(keys), life_of(keys, now, 0).margin
local to = { keys = keys, ready = ready, list_of = list_of, counts = counts, expire = expire, is_large = is_large }
local moved, lost, first = move_due(to, now, most, max_bytes)
if first and expire > 0 then
  redis.pcall('PEXPIRE', counts, string.format('%.0f', ahead(keys, now) + expire))
end
local head = next_due(keys, now, is_large)
if is_large and not head then
  forget_large(keys)
end
return { moved, lost, first or '', string.format('%.17g', now), head or '' }
