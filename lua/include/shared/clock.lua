-- Returns the time of Redis, the only clock in use: ms since the epoch, with the µs as fraction.
local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000
end

-- Returns what tells how long a script runs, in ms: the CPU time of Redis where scripts see it, as in Redis 8 and in
-- Valkey, else its clock. Where that stands still while a script runs, nothing tells.
local function running_ms()
  local os = rawget(_G, 'os')
  return os and os.clock() * 1000 or now_ms()
end

-- Returns a due time in ms since the epoch. due: ms since the epoch, or '+' and ms from now.
local function at(due, now)
  if string.sub(due, 1, 1) == '+' then
    return string.format('%.17g', now + tonumber(due))
  end
  return due
end

-- Does so with the due times of rows. Cost O(rows).
local function set_due(rows, now)
  for _, row in ipairs(rows) do
    row.due = at(row.due, now)
  end
end
