-- Sends messages of a bulk job to one queue, each once in the job.
-- KEYS[1]    job     HASH         state of the job
-- KEYS[2]    guard   HASH         ids that the job has sent or claimed -> '', or where it is dated '[due]' of each
-- KEYS[3-6] keys  of the queue's delayed messages, see include/*/types.lua
-- KEYS[7...] ready   LIST         the queue's lists, one a priority step
-- ARGV[1] wake      channel on which a new head is announced
-- ARGV[2] queue     name
-- ARGV[3] run       number of the run that writes
-- ARGV[4] ttl       how long job and guard are kept from now on, ms
-- ARGV[5] depth     how many messages may be in the queue at most, 0 for any number
-- ARGV[6] mode      'keep' or 'replace' what waits under the id of a message, '' to ask nothing
-- ARGV[7] count     how many duplicates of an id to replace at most
-- ARGV[8] is_dated  '1' where an id with another due time is another message, '0' where an id is sent once
-- ARGV[9...] first ten numbers: for each priority 0-9 its list, counted from 0; from the 19th on four a message:
-- id, due (ms since the epoch, or '' for now), priority (0-9), body; with an empty body the id is only claimed, and
-- counts as sent if it has a due time: the message waits elsewhere
-- Returns {'enqueued', number of new messages, number repeated, 'first' | 'head' | 'behind'}; or, with nothing changed,
-- {'committed' | 'aborted' | 'superseded' | 'unknown'} when the run may not write, or {'deep', number in the queue}
-- when the queue would become too deep
-- Atomic: a message is in the guard, and counted, if and only if it has been sent or kept out.
-- Cost: O(log N) a message
-- @include clock deliver_once depth job push

local to = { keys = keys, wake = ARGV[1], queue = ARGV[2], first_list = 7 }
function to.list_of(priority)
  return KEYS[7 + ARGV[9 + priority]]
end
local run, ttl, depth = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local mode, count, is_dated, now = ARGV[6], ARGV[7], ARGV[8] == '1', now_ms()
local once = mode ~= '' and { mode = mode, count = count }

local word = fenced(job, run)
if word then
  return { word }
end
local ids, rows, claims, seen, elsewhere = {}, {}, {}, {}, 0
for i = 19, #ARGV, 4 do
  ids[#ids + 1] = ARGV[i]
end
local guarded = redis.call('HMGET', guard, unpack(ids))
for n, id in ipairs(ids) do
  local i = 15 + 4 * n
  local known, own = seen[id] or guarded[n], is_dated and '[' .. ARGV[i + 1] .. ']' or ''
  if not (known and string.find(known, own, 1, true)) then
    seen[id] = (known or '') .. own
    claims[#claims + 1], claims[#claims + 2] = id, seen[id]
    if ARGV[i + 3] ~= '' then
      rows[#rows + 1] = { id = id, due = ARGV[i + 1], priority = ARGV[i + 2], body = ARGV[i + 3] }
    elseif ARGV[i + 1] ~= '' then
      elsewhere = elsewhere + 1
    end
  end
end
local sent, waiting = by_waiting(keys, once, rows)
if #sent > 0 and depth > 0 then
  local found = depth_of(to)
  if found + #sent > depth then
    return { 'deep', found }
  end
end
local place, kept, replaced = deliver_once(to, now, once, sent, waiting)
for i = 1, #claims, PUSHED do -- after the messages: a script that is cut short here repeats some and loses none
  redis.call('HSET', guard, unpack(claims, i, math.min(i + PUSHED - 1, #claims)))
end
redis.call('HINCRBY', job, 'enqueued', #rows + elsewhere - kept)
count_in(job, { kept = kept, replaced = replaced })
keep_all({ job, guard }, ttl)
return { 'enqueued', #claims / 2, #ids - #claims / 2, place }
