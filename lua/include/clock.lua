-- The one clock: Redis's own, in ms since the epoch with the µs as fraction.
local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000
end
