-- Makes the list of Redisson's form anew when it has lost entries, a page at a time.
-- KEYS[1] due     ZSET  entry -> due time, ms since the epoch
-- KEYS[2] bodies  LIST  entries, and some that have left
-- KEYS[3] notes   HASH  notes
-- KEYS[4] ids     HASH  id -> where its messages are
-- ARGV[1] last      where the page before ended, as it was returned, or ''
-- ARGV[2] last_due  the due time there, as it was returned, '' for the first page
-- ARGV[3] marked    count of messages marked when the list was emptied, as it was returned, '' for the first page
-- ARGV[4] count     most entries to look at
-- ARGV[5] bytes     about the most bytes of them
-- ARGV[6] mend      1, or 0 to change nothing
-- Returns {'end', number of entries that the list has lost at least, 0 but for the first page}; {'more', that number,
-- where the page ends, the due time there, count of messages marked}; or {'unknown', 0}, with nothing changed: messages
-- of other clients are yet to be put into the index of ids
-- Atomic: entries that are offered meanwhile are in the list once. It may be called anew when it was broken off.
-- Cost: O(log N * log N + count)
-- @include entry index_watermark lifetime names page records wrong_type zset

-- How many entries at the list's tail are searched for one of another client, which may be new.
local TAIL = 1000

local keys = { due = KEYS[1], bodies = KEYS[2], notes = KEYS[3], ids = KEYS[4] }
local last, last_due, marked = ARGV[1], ARGV[2], ARGV[3]
local count, bytes, mend = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'

local wrong = wrong_stored(keys)
if wrong then
  return wrong
end
local start, lost, expire = 0, 0, redis.call('PTTL', keys.due)
if last_due == '' then
  lost = redis.call('ZCARD', keys.due) - redis.call('LLEN', keys.bodies)
  if lost <= 0 or not mend then
    return { 'end', math.max(lost, 0) }
  elseif not is_all_indexed(keys) then
    return { 'unknown', 0 }
  end
  marked = redis.call('HGET', keys.notes, 'order') or '0'
  redis.call('UNLINK', keys.bodies)
else
  start = rank_after(keys.due, last, last_due)
end

-- Whether an entry was there when the list was emptied: those that came later are in it.
local function is_old(entry, message)
  if is_ours(entry) then
    return (tonumber(marked) - struct.unpack('>I4', entry, 2)) % 4294967296 < 2147483648
  end
  for _, record in ipairs(records_of(redis.call('HGET', keys.ids, field_of(id_of_foreign(entry, message))))) do
    if record.mark == mark_of(entry) then
      return not redis.call('LPOS', keys.bodies, entry, 'RANK', -1, 'MAXLEN', TAIL)
    end
  end
  return false
end

local known, old = is_all_indexed(keys), {}
local entries, dues, _, bodies = page(keys, start, count, bytes)
for i, entry in ipairs(entries) do
  old[#old + 1] = is_old(entry, bodies[i] or '') and entry or nil
end
if #old > 0 then
  redis.call('LPUSH', keys.bodies, unpack(old))
  if known then
    note_all_indexed(keys)
  end
  lengthen_all({ keys.bodies }, expire)
end
if start + #entries < redis.call('ZCARD', keys.due) then
  return { 'more', lost, cursor_of(entries[#entries]), dues[#dues], marked }
end
return { 'end', lost }
