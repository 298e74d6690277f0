-- Finds entries in the list of Redisson's layout that have lost their place in the index, and puts them back there.
-- KEYS keys  of the queue's delayed messages, see include/redisson/types.lua
-- ARGV wake   channel on which a new head is announced
-- ARGV mend   FLAG    else it changes nothing
-- ARGV skip   NUMBER  how many entries at the list's tail to leave out
-- ARGV count  NUMBER  how many of the entries before those to look at
-- Returns {number of entries looked at, their bytes, then the mark of each lost entry}
-- Atomic: an entry is put back only while there is a record of it and it is not in the index. One that was transferred
-- or removed has either no record or is no longer in the list.
-- Cost: O(entries between the page and the nearer end of the list + count * log N)
-- @include entry lifetime names records wake zset

-- Returns the due time in the record of an entry that is not in the index, or nil.
local function due_of(id, entry)
  for _, record in ipairs(records_of(redis.call('HGET', keys.ids, field_of(id)))) do
    if record.mark == mark_of(entry) and not locate(keys.due, record.due, record.mark) then
      return record.due
    end
  end
end

local entries = redis.call('LRANGE', keys.bodies, -skip - count, -skip - 1)
local dues = #entries > 0 and redis.call('ZMSCORE', keys.due, unpack(entries)) or {}
local size, left, messages = 0, {}, {}
for i, entry in ipairs(entries) do
  size = size + #entry
  local message = not dues[i] and message_of(entry)
  if message then
    left[#left + 1], messages[#messages + 1] = entry, message
  end
end
local expire, found, fresh = redis.call('PTTL', keys.bodies), {}, {}
for i, id in ipairs(names(keys, left, messages)) do
  local due = due_of(id, left[i])
  if due then
    found[#found + 1] = mark_of(left[i])
    if mend then
      redis.call('ZADD', keys.due, due, left[i])
      fresh[left[i]] = true
    end
  end
end
local head = redis.call('ZRANGE', keys.due, 0, 0, 'WITHSCORES')
if fresh[head[1]] then
  wake_up(wake, head[2])
end
if mend then
  lengthen_all(keys, expire)
end
return { #entries, size, unpack(found) }
