-- How late messages are when they are transferred. Bucket 0 has those late by at most PUNCTUAL ms. Bucket i has
-- those beyond bound i that are not beyond the next one.
-- @include counters
local PUNCTUAL = 5

-- Returns the bounds, ms. Those who read the counters have them in s. A script makes this table only where it needs it.
local function bounds_of_lateness()
  return { 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000, 900000, 3600000 }
end

-- Returns for bounds how many messages are late by more than that, before the oldest are transferred. first: due time
-- of the oldest; most: how many are transferred at most. It begins with the longest bound that the oldest is beyond,
-- and ends where all that leave are beyond one. Cost O(log N) a bound.
local function late_by(due, now, first, most)
  local LATE_MS = bounds_of_lateness()
  local late = { longest = 0, first_ms = now - first, last_ms = now - first }
  for i = #LATE_MS, 1, -1 do
    if late.first_ms > LATE_MS[i] then
      late.longest = math.max(late.longest, i)
      late[i] = most == 1 and 1 or redis.call('ZCOUNT', due, '-inf', string.format('(%.17g', now - LATE_MS[i]))
      if late[i] >= most then
        break
      end
    end
  end
  return late
end

-- Counts messages that were transferred, the oldest ones. Takes their due times as evenly spread. late: the reply of
-- `late_by`, with `last_ms`: how late the last of them was.
local function count_late(counts, late, moved)
  local by, later = {}, 0
  for i = late.longest, 1, -1 do
    local found = math.min(late[i] or moved, moved)
    if found > later then
      by['late:' .. i], later = found - later, found
    end
  end
  by['late:0'] = moved - later
  -- Readers count PUNCTUAL / 2 for each message of bucket 0.
  by.late_us = math.floor(500 * (moved * (late.first_ms + late.last_ms) - (moved - later) * PUNCTUAL))
  count_up(counts, by)
end
