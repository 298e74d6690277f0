-- Makes messages of Redisson's form that other clients have offered findable by their ids, a page at a time.
-- KEYS[1] due     ZSET  entry -> due time, ms since the epoch
-- KEYS[2] backup  LIST  entries, and some that have left
-- KEYS[3] order   HASH  notes
-- KEYS[4] twins   HASH  id -> where its messages are
-- ARGV[1] last    where the page before ended, as it was returned, or ''
-- ARGV[2] last_due  the due time there, as it was returned, '' for the first page
-- ARGV[3] tail    tail of the list when the first page was read, as it was returned, '' for the first page
-- ARGV[4] count   most messages to look at
-- ARGV[5] bytes   about the most bytes of them
-- Returns {'end', number of messages that have become findable}: all are that were there when the first page was read;
-- or {'more', that number, where the page ends, the due time there, tail of the list}
-- Atomic: a message that was there when the first page was read, and waits until the last one, is found from then on.
-- Cost: O(log N * log N + count)
-- @include wrong_type
-- @include page
-- @include after
-- @include others

local keys = { due = KEYS[1], backup = KEYS[2], order = KEYS[3], twins = KEYS[4] }
local last, last_due, tail = ARGV[1], ARGV[2], ARGV[3]
local count, bytes = tonumber(ARGV[4]), tonumber(ARGV[5])

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end
if last_due == '' then
  local found = index_tail(keys, redis.call('HGET', keys.order, 'tail'), count, bytes)
  if found then
    forget(keys, found)
    return { 'end', found }
  end
  tail = mark_of(redis.call('LINDEX', keys.backup, -1))
  redis.call('HSET', keys.order, 'sought', tail)
end
local start = last_due == '' and 0 or rank_after(keys.due, last, last_due)
local entries, dues, _, bodies = page(keys, start, count, bytes)
local found = index_others(keys, entries, dues, bodies)
forget(keys, found)
if start + #entries < redis.call('ZCARD', keys.due) then
  return { 'more', found, cursor_of(entries[#entries]), dues[#dues], tail }
end
if redis.call('HGET', keys.order, 'sought') == tail then -- what came since is behind it
  found = found + (index_tail(keys, tail, count, bytes) or 0)
  redis.call('HDEL', keys.order, 'sought')
end
return { 'end', found }
