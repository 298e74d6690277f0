-- Sends staged messages of a committed bulk job, the first ones, as far as they go to one queue.
-- KEYS[1] job     HASH    state of the job
-- KEYS[2] staged  LIST    messages to be sent, five entries each: queue, id, due, priority, body
-- KEYS[3] due     ZSET    message -> due time, ms since the epoch
-- KEYS[4] backup  HASH    id -> message
-- KEYS[5] order   STRING  count of messages marked so far
-- KEYS[6] twins   ZSET    ids of messages stored beside another of the same id
-- KEYS[7] other   ZSET    due times of messages in the other form of backup; due again where they are not counted
-- KEYS[8...] ready  LIST  the queue's lists, one a priority step
-- ARGV[1] wake    channel on which a new head is announced
-- ARGV[2] queue   name
-- ARGV[3] count   most messages to send
-- ARGV[4] bytes   about the most bytes to send
-- ARGV[5] rate    messages a second that the job may send, 0 for any number
-- ARGV[6] depth   most messages that may be in the queue, 0 for any number
-- ARGV[7] ttl     ms for which job and staged messages are kept from now on
-- ARGV[8...17] for priority 0-9: which of the lists it goes to, counted from 0
-- Returns {'published', number sent, 'first' | 'head' | 'behind', number left}; or, with nothing changed, {state of the
-- job} when it is not 'publishing', {'wait', ms} or {'deep', number in the queue}
-- Atomic: sends first, removes after; with the last message the job is committed.
-- Cost: O(log N) a message
-- @include clock
-- @include wrong_type
-- @include pressure
-- @include deliver

local job, staged = KEYS[1], KEYS[2]
local keys = { due = KEYS[3], backup = KEYS[4], order = KEYS[5], twins = KEYS[6] }
local to = { keys = keys, wake = ARGV[1], queue = ARGV[2], other = KEYS[7], first_list = 8 }
function to.list_of(priority)
  return KEYS[8 + ARGV[8 + priority]]
end
local count, bytes, rate, depth = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local ttl, ENTRIES, now = ARGV[7], 5, now_ms()

local wrong = wrong_stored(keys, 8) or wrong_type({ [job] = 'hash', [staged] = 'list' })
if wrong then
  return wrong
end
local state = redis.call('HGET', job, 'state') or 'unknown'
if state ~= 'publishing' then
  return { state }
end
local held = held_up(job, rate, depth, to, 1, now)
if held then
  return held
end
if depth > 0 then
  count = math.min(count, depth - depth_of(to))
end
local rows, size = {}, 0
while #rows < count and size < bytes do
  local entry = redis.call('LRANGE', staged, #rows * ENTRIES, #rows * ENTRIES + ENTRIES - 1)
  if entry[1] ~= to.queue then
    break
  end
  rows[#rows + 1] = { id = entry[2], due = entry[3], priority = entry[4], body = entry[5] }
  size = size + #entry[5]
end
local place = deliver(to, now, rows)
sent(job, rate, #rows, now)
redis.call('LTRIM', staged, #rows * ENTRIES, -1)
redis.call('PEXPIRE', staged, ttl)
redis.call('PEXPIRE', job, ttl)
local left = redis.call('LLEN', staged) / ENTRIES
if left == 0 then
  redis.call('HSET', job, 'state', 'committed')
end
return { 'published', #rows, place, left }
