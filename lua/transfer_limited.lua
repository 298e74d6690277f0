-- Moves messages that are due as `transfer` does, of a queue that has a rate, or whose late messages do not run.
-- KEYS keys      of the queue's delayed messages, see include/*/types.lua
-- KEYS bucket    HASH  the queue's tokens, see bucket.lua
-- KEYS ready...  LIST  the queue's lists, one a priority step
-- ARGV most, max_bytes  NUMBER      how many messages, and about how many bytes, to move at most
-- ARGV counts           key of the queue's counters
-- ARGV overdue          what happens to a message that is too late: 'run', 'dead-letter' or 'drop'
-- ARGV max_lateness_ms  NUMBER      from how late on it is too late, ms
-- ARGV rate             NUMBER      most messages a second, '' for no limit
-- ARGV burst            NUMBER      how many may go at once after a pause
-- ARGV list_of          PRIORITIES  the queue's lists
-- Returns {number moved, number without a body, due time of the first or '', now, when to call again or '', number
-- dropped, 1 if due messages are held back, {four for each message that is too late and is to be buried: key, due time,
-- priority, body; the last two are '' where the body is missing}}. While messages are too late, no other moves.
-- Atomic: pushes each message before it removes it; cut short, it may repeat messages and never lose one.
-- Cost: O(log N) a message
-- @include bucket clock counters due large lifetime move too_late

local now = now_ms()

local to = { keys = keys, ready = ready, list_of = list_of, counts = counts }
to.is_large, to.expire = has_large(keys), life_of(keys, now, 0).margin
local done, again, late = { moved = 0, lost = 0, dropped = 0 }, nil, {}
local limit_ms = overdue ~= 'run' and now - max_lateness_ms
if limit_ms and redis.call('ZCOUNT', keys.due, '-inf', string.format('(%.17g', limit_ms)) > 0 then
  if overdue == 'drop' then
    done.dropped, done.lost = drop_late(keys, limit_ms, most, max_bytes, to.is_large)
    count_up(counts, { overdue_dropped = done.dropped, lost = done.lost })
  else
    add_late(late, keys, limit_ms, most)
  end
elseif rate then
  again = move_limited(to, bucket, { rate = rate, burst = burst }, now, most, max_bytes, done)
else
  done.moved, done.lost, done.first = move_due(to, now, most, max_bytes)
end
if (done.first or done.dropped > 0) and to.expire > 0 then
  redis.pcall('PEXPIRE', counts, string.format('%.0f', ahead(keys, now) + to.expire))
end
local head = next_due(keys, now, to.is_large)
if to.is_large and not head then
  forget_large(keys)
end
again = head and again and string.format('%.17g', again) or head or ''
return {
  done.moved, done.lost, done.first or '', string.format('%.17g', now), again, done.dropped,
  head and again ~= head and 1 or 0, late,
}
