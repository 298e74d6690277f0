-- What has happened to the messages of a queue, minute by minute, for a day. An hour is a STRING beside the counters,
-- whose key is that of the counters, ':', and the number of the hour since the epoch. It has a block for each kind, 60
-- numbers of 4 bytes; blocks at its end that are not needed are not there. As with counters, nothing that keeps Redis
-- from counting ends an operation. `kombu_delayq/store/minutes.py` reads them.

-- Adds to the number of a kind in this minute; of `late` it keeps the largest. Does nothing for any other kind.
-- Cost O(1).
local function count_minute(counts, now, kind, number)
  local kept_ms, blocks = 90000000, { delivered = 0, late = 1, retried = 2, failed = 3, dead = 4 }
  if not blocks[kind] then
    return
  end
  local minute = math.floor(now / 60000)
  local minutes = string.format('%s:%d', counts, math.floor(minute / 60))
  local place = string.format('#%d', 60 * blocks[kind] + minute % 60)
  if kind == 'late' then
    local found = redis.pcall('BITFIELD', minutes, 'GET', 'u32', place)[1]
    number = number - (tonumber(found) or number)
  end
  local by = string.format('%d', number)
  if number > 0 and redis.pcall('BITFIELD', minutes, 'OVERFLOW', 'SAT', 'INCRBY', 'u32', place, by)[1] == number then
    -- Written anew, it has no more room than it needs: a string that grows gets twice as much.
    redis.pcall('SET', minutes, redis.pcall('GET', minutes), 'PX', string.format('%d', kept_ms))
  end
end

-- Counts messages that were transferred. late: how late they were, as in `late_by`, where the first was not punctual.
local function count_delivered(counts, now, moved, late)
  if moved > 0 then
    count_minute(counts, now, 'delivered', moved)
  end
  if moved > 0 and late then
    count_minute(counts, now, 'late', math.floor(late.first_ms))
  end
end
