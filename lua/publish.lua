-- Sends the first staged messages of a committed bulk job, up to the first that goes to another queue.
-- KEYS[1]    job     HASH         state of the job
-- KEYS[2]    staged  LIST         messages to be sent, five entries a message: queue, id, due, priority, body
-- KEYS[3-6] keys  of the queue's delayed messages, see include/*/types.lua
-- KEYS[7...] ready   LIST         the queue's lists, one a priority step
-- ARGV[1] wake   channel on which a new head is announced
-- ARGV[2] queue  name
-- ARGV[3] count  how many messages to send at most
-- ARGV[4] bytes  about how many bytes to send at most
-- ARGV[5] depth  how many messages may be in the queue at most, 0 for any number
-- ARGV[6] ttl    how long job and staged messages are kept from now on, ms
-- ARGV[7] length how many messages are staged, or '' for any number
-- ARGV[8] cutoff due time, ms since the epoch, after which a message waits elsewhere and is not sent; '' to send all
-- ARGV[9...18] for each priority 0-9: its list, counted from 0
-- Returns {'published', number sent, 'first' | 'head' | 'behind', number left}, with 0 sent where not `length` messages
-- are staged; or, with nothing changed, {state of the job} when it is not 'publishing', or {'deep', number in the
-- queue} when the queue is too deep
-- Atomic: sends first, removes after; with the last message the job is committed.
-- Cost: O(log N) a message
-- @include clock deliver depth job

local to = { keys = keys, wake = ARGV[1], queue = ARGV[2], first_list = 7 }
function to.list_of(priority)
  return KEYS[7 + ARGV[9 + priority]]
end
local count, bytes, depth = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local ttl, length, cutoff, now = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), now_ms()

local state = redis.call('HGET', job, 'state') or 'unknown'
if state ~= 'publishing' then
  return { state }
end
local staged_now = redis.call('LLEN', staged) / ENTRIES
if length and length ~= staged_now then
  return { 'published', 0, 'behind', staged_now }
end
if depth > 0 then
  local found = depth_of(to)
  if found >= depth then
    return { 'deep', found }
  end
  count = math.min(count, depth - found)
end
local rows, read, size = {}, 0, 0
while read < count and size < bytes do
  local entry = redis.call('LRANGE', staged, read * ENTRIES, read * ENTRIES + ENTRIES - 1)
  if entry[1] ~= to.queue then
    break
  end
  if not (cutoff and entry[3] ~= '' and tonumber(entry[3]) > cutoff) then
    rows[#rows + 1] = { id = entry[2], due = entry[3], priority = entry[4], body = entry[5] }
  end
  read, size = read + 1, size + #entry[5]
end
local place = #rows > 0 and deliver(to, now, rows) or 'behind'
redis.call('LTRIM', staged, read * ENTRIES, -1)
redis.call('PEXPIRE', staged, ttl)
redis.call('PEXPIRE', job, ttl)
local left = redis.call('LLEN', staged) / ENTRIES
if left == 0 then
  redis.call('HSET', job, 'state', 'committed')
end
return { 'published', read, place, left }
