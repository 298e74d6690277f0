-- The note of a periodic entry in one queue, see arm.lua.

-- What stands in a note in place of a digest.
local DISARMED = { changed = true, paused = true }
-- For how long after its time a run is noted as armed, in ms: it may wait for a transfer worker.
local OVERDUE = 60000

-- Returns a note: digest, last (time of the last run), runs ({time, id} each, in order). Cost O(runs).
local function read_note(text)
  local words = {}
  for word in string.gmatch(text or 'changed 0', '%S+') do
    words[#words + 1] = word
  end
  local note = { digest = words[1], last = words[2], runs = {} }
  for i = 3, #words, 2 do
    table.insert(note.runs, { words[i], words[i + 1] })
  end
  return note
end

local function written_note(note)
  local words = { note.digest, note.last }
  for _, run in ipairs(note.runs) do
    words[#words + 1] = run[1]
    words[#words + 1] = run[2]
  end
  return table.concat(words, ' ')
end

-- Returns the time of the latest run of an entry, armed or begun.
local function latest_of(note)
  local armed = note.runs[#note.runs]
  return tonumber(armed and armed[1] or note.last)
end

-- Leaves out the runs that were due long ago. Cost O(runs).
local function forget_begun(note, now)
  while #note.runs > 0 and tonumber(note.runs[1][1]) < now - OVERDUE do
    note.last = table.remove(note.runs, 1)[1]
  end
end
