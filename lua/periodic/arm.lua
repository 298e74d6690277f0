-- Stores runs of periodic entries until they are due: an entry takes no run that is not later than its latest one.
-- A note has, separated by blanks, the digest of the entry, or 'changed' or 'paused' for one that was disarmed,
-- the time of its last run, and for each armed run its time and its id.
-- KEYS periodic  HASH  entry -> its note; '' -> token of the process that armed last
-- KEYS keys      of the queue's delayed messages, see include/*/types.lua
-- ARGV wake, queue  channel on which a new head is announced, and the name of the queue there
-- ARGV expire       NUMBER  ms after which an unused queue expires, 0 for never
-- ARGV token        fencing token of the process that arms
-- ARGV runs...  {entry, digest, time, id, due, priority, body}  digest of the entry; time of the run, and due, in ms
-- since the epoch; priority: 0-9
-- Returns {'first' | 'head' | 'behind', a word for each run}: 'armed', or, with nothing changed, 'repeated' (the run is
-- not later than the latest one) or 'changed' (the entry is armed by another digest); or, with nothing changed,
-- {'superseded', the token}
-- Atomic: a run is noted if and only if its message is stored; stores first, notes after.
-- Cost: O(log N) a run, and O(runs armed) an entry
-- @include announce armed clock lifetime put

local now = now_ms()

local latest = redis.call('HGET', periodic, '')
if latest and tonumber(latest) > tonumber(token) then
  return { 'superseded', latest }
end
local notes, words = {}, {}

local function arm(run)
  local note = notes[run.entry] or read_note(redis.call('HGET', periodic, run.entry))
  notes[run.entry] = note
  if note.digest ~= run.digest and not DISARMED[note.digest] then
    return 'changed'
  elseif tonumber(run.time) <= latest_of(note) then
    return 'repeated'
  end
  put(keys, run.id, run.due, run.priority, run.body)
  note.digest = run.digest
  table.insert(note.runs, { run.time, run.id })
  return 'armed'
end

local life = life_of(keys, now, expire)
local place = announce(keys, wake, queue, function()
  for i, run in ipairs(runs) do
    words[i] = arm(run)
  end
end)
live_on(keys, life, now)
redis.call('HSET', periodic, '', token)
for entry, note in pairs(notes) do
  forget_begun(note, now)
  redis.call('HSET', periodic, entry, written_note(note))
end
return { place, unpack(words) }
