-- Sends messages of a bulk job to one queue, each id once in the job, or stages them until the job is committed.
-- KEYS[1]    job     HASH         state of the job
-- KEYS[2]    guard   SET          ids that the job has sent or claimed
-- KEYS[3]    staged  LIST         messages to be sent when the job is committed
-- KEYS[4-7] keys  of the queue's delayed messages, see include/*/types.lua
-- KEYS[8...] ready   LIST         the queue's lists, one a priority step
-- ARGV[1] wake       channel on which a new head is announced
-- ARGV[2] queue      name
-- ARGV[3] run        number of the run that writes
-- ARGV[4] ttl        how long job, guard and staged messages are kept from now on, ms
-- ARGV[5] depth      how many messages may be in the queue at most, 0 for any number
-- ARGV[6] is_staged  '1' to stage the messages, '0' to send them
-- ARGV[7] mode       'keep' or 'replace' what waits under the id of a message, '' to ask nothing
-- ARGV[8] count      how many duplicates of an id to replace at most
-- ARGV[9...] first ten numbers: for each priority 0-9 its list, counted from 0; from the 19th on four a message:
-- id, due (ms since the epoch, or '' for now), priority (0-9), body; with an empty body the id is only claimed, and
-- counts as sent if it has a due time: the message waits elsewhere
-- Returns {'enqueued', number of new ids, number repeated, 'first' | 'head' | 'behind'}; or, with nothing changed,
-- {'committed' | 'aborted' | 'superseded' | 'unknown'} when the run may not write, or {'deep', number in the queue}
-- when the queue would become too deep
-- Atomic: an id is in the guard, and counted, if and only if its message has been sent, staged or kept out.
-- Cost: O(log N) a message
-- @include clock deliver_once depth job

local to = { keys = keys, wake = ARGV[1], queue = ARGV[2], first_list = 8 }
function to.list_of(priority)
  return KEYS[8 + ARGV[9 + priority]]
end
local run, ttl, depth = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local is_staged, mode, count, now = ARGV[6] == '1', ARGV[7], ARGV[8], now_ms()
local once = mode ~= '' and { mode = mode, count = count }

local word = fenced(job, run)
if word then
  return { word }
end
local ids, rows, claims, seen, elsewhere = {}, {}, {}, {}, 0
for i = 19, #ARGV, 4 do
  ids[#ids + 1] = ARGV[i]
end
for n, guarded in ipairs(redis.call('SMISMEMBER', guard, unpack(ids))) do
  local id, i = ids[n], 15 + 4 * n
  if guarded == 0 and not seen[id] then
    seen[id] = true
    claims[#claims + 1] = id
    if ARGV[i + 3] ~= '' then
      rows[#rows + 1] = { id = id, due = ARGV[i + 1], priority = ARGV[i + 2], body = ARGV[i + 3] }
    elseif ARGV[i + 1] ~= '' then
      elsewhere = elsewhere + 1
    end
  end
end
local sent, waiting = by_waiting(keys, once, is_staged and {} or rows)
if #sent > 0 and depth > 0 then
  local found = depth_of(to)
  if found + #sent > depth then
    return { 'deep', found }
  end
end
local place, kept, replaced = deliver_once(to, now, once, sent, waiting)
for _, row in ipairs(is_staged and rows or {}) do
  redis.call('RPUSH', staged, to.queue, row.id, row.due, row.priority, row.body)
end
if #claims > 0 then -- after the messages: a script that is cut short here repeats a message and loses none
  redis.call('SADD', guard, unpack(claims))
end
redis.call('HINCRBY', job, 'enqueued', #rows + elsewhere - kept)
count_in(job, { kept = kept, replaced = replaced })
keep_all({ job, guard, staged }, ttl)
return { 'enqueued', #claims, #ids - #claims, place }
