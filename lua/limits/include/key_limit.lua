-- Returns the limit of a key: bound, pause_ms and burst, or no pause without a rate, and weight. Cost O(1).
local function limit_of(limits, name)
  if name == '' then
    return { bound = math.huge, weight = 1 }
  end
  local of = string.match(name, '^[^:]*')
  local found = {}
  for _, text in ipairs(redis.call('HMGET', limits, of, '=' .. of, '=' .. name)) do
    local is_json, fields = pcall(cjson.decode, text or '{}')
    for field, value in pairs(is_json and type(fields) == 'table' and fields or {}) do
      found[field] = value
    end
  end
  local rate = type(found.rate) == 'table' and found.rate or {}
  local a_second, burst = tonumber(rate[1]), tonumber(rate[2])
  return {
    bound = tonumber(found.running) or math.huge,
    pause_ms = a_second and burst and 1000 / a_second,
    burst = burst,
    weight = tonumber(found.weight) or 1,
  }
end

-- Returns when the next message of a key has a token, ms since the epoch; 0 without a rate.
local function next_token(key, limit)
  return limit.pause_ms and key.full - (limit.burst - 1) * limit.pause_ms or 0
end
