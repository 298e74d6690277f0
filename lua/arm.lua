-- Stores runs of periodic entries until they are due: an entry takes no run that is not later than its latest one.
-- A note has, separated by blanks, the digest of the entry, or 'changed' or 'paused' for one that was disarmed,
-- the time of its last run, and for each armed run its time and its id.
-- KEYS[1] periodic  HASH         entry -> its note; '' -> token of the process that armed last
-- KEYS[2-5] keys  of the queue's delayed messages, see include/*/types.lua
-- ARGV[1] wake    channel on which a new head is announced
-- ARGV[2] queue   name, as announced
-- ARGV[3] expire  ms after which an unused queue expires, 0 for never
-- ARGV[4] token   fencing token of the process that arms
-- ARGV[5...] seven a run: entry, digest of the entry, time of the run (ms since the epoch), id, due (ms since the
-- epoch), priority (0-9), body
-- Returns {'first' | 'head' | 'behind', a word for each run}: 'armed', or, with nothing changed, 'repeated' (the run is
-- not later than the latest one) or 'changed' (the entry is armed by another digest); or, with nothing changed,
-- {'superseded', the token}
-- Atomic: a run is noted if and only if its message is stored; stores first, notes after.
-- Cost: O(log N) a run, and O(runs armed) an entry
-- @include announce armed clock lifetime put

local wake, queue, expire, token = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local now = now_ms()

local latest = redis.call('HGET', periodic, '')
if latest and tonumber(latest) > tonumber(token) then
  return { 'superseded', latest }
end
local notes, words = {}, {}

local function arm(entry, digest, run, id, due, priority, body)
  local note = notes[entry] or read_note(redis.call('HGET', periodic, entry))
  notes[entry] = note
  if note.digest ~= digest and not DISARMED[note.digest] then
    return 'changed'
  elseif tonumber(run) <= latest_of(note) then
    return 'repeated'
  end
  put(keys, id, due, priority, body)
  note.digest = digest
  table.insert(note.runs, { run, id })
  return 'armed'
end

local life = life_of(keys, now, expire)
local place = announce(keys, wake, queue, function()
  for i = 5, #ARGV, 7 do
    words[#words + 1] = arm(unpack(ARGV, i, i + 6))
  end
end)
live_on(keys, life, now)
redis.call('HSET', periodic, '', token)
for entry, note in pairs(notes) do
  forget_begun(note, now)
  redis.call('HSET', periodic, entry, written_note(note))
end
return { place, unpack(words) }
