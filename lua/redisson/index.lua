-- Makes messages of Redisson's layout that other clients have offered findable by their ids, a page at a time.
-- KEYS keys  of the queue's delayed messages, see include/redisson/types.lua
-- ARGV last, last_due    cursor where the page before ended, and due time there, as returned; '' for the first page
-- ARGV tail              mark that the list's tail had at the first page, as returned; '' for the first page
-- ARGV count, max_bytes  NUMBER  how many messages, and about how many bytes of them, to look at, at most
-- Returns {'more', number of messages that have become findable, cursor where the page ends, due time at that cursor,
-- mark of the list's tail}; or {'end', that number} after the last page
-- Atomic: a message that waits from the first page to the last is found from then on.
-- Cost: O(log N * log N + count)
-- @include entry foreign forget page zset

if last_due == '' then
  local found = index_tail(keys, redis.call('HGET', keys.notes, 'tail'), count, max_bytes)
  if found then
    forget(keys, found)
    return { 'end', found }
  end
  tail = mark_of(redis.call('LINDEX', keys.bodies, -1))
  redis.call('HSET', keys.notes, 'sought', tail)
end
local start = last_due == '' and 0 or rank_after(keys.due, last, last_due)
local entries, dues, _, bodies = page(keys, start, count, max_bytes)
local found = index_foreign(keys, entries, dues, bodies)
forget(keys, found)
if start + #entries < redis.call('ZCARD', keys.due) then
  return { 'more', found, cursor_of(entries[#entries]), dues[#dues], tail }
end
if redis.call('HGET', keys.notes, 'sought') == tail then -- newer entries stand behind that tail
  found = found + (index_tail(keys, tail, count, max_bytes) or 0)
  redis.call('HDEL', keys.notes, 'sought')
end
return { 'end', found }
