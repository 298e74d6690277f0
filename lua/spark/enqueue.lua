-- Sends messages of a bulk job to one queue, each once in the job.
-- KEYS job       HASH  state of the job
-- KEYS guard     HASH  ids that the job has sent or claimed -> '', or where it is dated '[due]' of each
-- KEYS keys      of the queue's delayed messages, see include/*/types.lua
-- KEYS ready...  LIST  the queue's lists, one a priority step
-- ARGV wake, queue  channel on which a new head is announced, and the name of the queue there
-- ARGV run          number of the run that writes
-- ARGV ttl          NUMBER      how long job and guard are kept from now on, ms
-- ARGV depth        NUMBER      how many messages may be in the queue at most, 0 for any number
-- ARGV mode         'keep' or 'replace' what waits under an id, 'reschedule' to send nothing else, '' to ask nothing
-- ARGV count        how many duplicates of an id to replace at most
-- ARGV is_dated     FLAG        where an id with another due time is another message; else an id is sent once
-- ARGV list_of      PRIORITIES  the queue's lists
-- ARGV offers...  {id, due, priority, body}  due: ms since the epoch, or '' for now; priority: 0-9; with an empty body
-- the id is only claimed, and counts as sent if it has a due time: the message waits elsewhere
-- Returns {'enqueued', number of new messages, number repeated, 'first' | 'head' | 'behind'}; or, with nothing changed,
-- {'committed' | 'aborted' | 'superseded' | 'unknown'} when the run may not write, or {'deep', number in the queue}
-- when the queue would become too deep
-- Atomic: a message is in the guard, and counted, if and only if it has been sent or kept out.
-- Cost: O(log N) a message
-- @include clock deliver_once depth job push

local to = { keys = keys, wake = wake, queue = queue, ready = ready, list_of = list_of }
local now = now_ms()
local once = mode ~= '' and { mode = mode, count = count }

local word = fenced(job, run)
if word then
  return { word }
end
local ids, rows, claims, seen, elsewhere = {}, {}, {}, {}, 0
for n, offer in ipairs(offers) do
  ids[n] = offer.id
end
local guarded = redis.call('HMGET', guard, unpack(ids))
for n, offer in ipairs(offers) do
  local id = offer.id
  local known, own = seen[id] or guarded[n], is_dated and '[' .. offer.due .. ']' or ''
  if not (known and string.find(known, own, 1, true)) then
    seen[id] = (known or '') .. own
    claims[#claims + 1], claims[#claims + 2] = id, seen[id]
    if offer.body ~= '' then
      rows[#rows + 1] = offer
    elseif offer.due ~= '' then
      elsewhere = elsewhere + 1
    end
  end
end
local sent, waiting = by_waiting(keys, once, rows)
local missed = mode == 'reschedule' and #sent or 0
sent = missed > 0 and {} or sent
if #sent > 0 and depth > 0 then
  local found = depth_of(to)
  if found + #sent > depth then
    return { 'deep', found }
  end
end
local place, kept, replaced = deliver_once(to, now, once, sent, waiting)
kept = kept + missed
for i = 1, #claims, PUSHED do -- after the messages: a script that is cut short here repeats some and loses none
  redis.call('HSET', guard, unpack(claims, i, math.min(i + PUSHED - 1, #claims)))
end
redis.call('HINCRBY', job, 'enqueued', #rows + elsewhere - kept)
count_in(job, { kept = kept, replaced = replaced })
keep_all({ job, guard }, ttl)
return { 'enqueued', #claims / 2, #ids - #claims / 2, place }
