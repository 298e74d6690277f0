-- Removes the waiting runs of periodic entries that are changed, removed or paused.
-- KEYS periodic  HASH  entry -> its note, see arm.lua; '' -> token of the process that armed last
-- KEYS keys      of the queue's delayed messages, see include/*/types.lua
-- ARGV counts      key of the queue's counters
-- ARGV token       fencing token of the process that arms; '' for anybody else, who supersedes it
-- ARGV state       'changed' or 'paused', for the note; 'purged': 'changed', and runs to come are armed again
-- ARGV entries...  their names
-- Returns {'disarmed', number of messages removed}; or {'superseded', the token}, with nothing changed
-- Atomic: a run that is removed is forgotten, as if it had never been armed.
-- Cost: O(log N) a run
-- @include armed clock counters find search

local now, left, removed = now_ms(), redis.pcall('PTTL', keys.due), 0 -- the last message may leave

local latest = redis.call('HGET', periodic, '')
if token == '' then
  token = string.format('%.0f', math.max(tonumber(latest or 0) + 1, math.floor(now)))
elseif latest and tonumber(latest) > tonumber(token) then
  return { 'superseded', latest }
end
redis.call('HDEL', periodic, '') -- a full Redis refuses a script whose first write needs memory
for _, entry in ipairs(entries) do
  local stored_note = redis.call('HGET', periodic, entry)
  local note = read_note(stored_note)
  for _, run in ipairs(note.runs) do
    local found = #search(keys, { run[2] }, 1, math.huge, remove)[1] / 4
    removed = removed + found
    if found == 0 and not (state == 'purged' and tonumber(run[1]) > now) then
      note.last = string.format('%.0f', math.max(tonumber(note.last), tonumber(run[1])))
    end
  end
  if state == 'purged' then
    note.last = string.format('%.0f', math.min(tonumber(note.last), math.floor(now))) -- the clock may have gone back
  end
  note.digest, note.runs = state ~= 'purged' and state or note.digest == 'paused' and 'paused' or 'changed', {}
  if stored_note then
    redis.call('HSET', periodic, entry, written_note(note))
  end
end
redis.call('HSET', periodic, '', token)
count_operation(counts, 'cancel', removed, keys.due, left)
return { 'disarmed', removed }
