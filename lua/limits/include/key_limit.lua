-- Most fields of a hash that is read whole.
local SMALL = 100

-- Returns the limit that some texts say, each in place of those before: bound, pause_ms and burst, or no pause without
-- a rate, and weight.
local function limit_in(texts)
  local found = {}
  for _, text in ipairs(texts) do
    local is_json, fields = pcall(cjson.decode, text)
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

-- Returns a function of a name, which returns what the hash of limits has, or nil. Reads a small hash once. Cost O(1).
local function reader_of(limits)
  local length = redis.pcall('HLEN', limits)
  if type(length) ~= 'number' or length > SMALL then -- an ACL may forbid the question
    return function(name)
      return redis.call('HMGET', limits, name)[1] or nil
    end
  end
  local all, values = redis.call('HGETALL', limits), {}
  for place = 1, #all, 2 do
    values[all[place]] = all[place + 1]
  end
  return function(name)
    return values[name]
  end
end

-- Returns a function of a key, which returns its limit. Cost O(1) a key.
local function limits_by_key(limits)
  local text_of_limit, declared, known = reader_of(limits), {}, { [''] = limit_in({}) }
  return function(name)
    if not known[name] then
      local of, own = string.match(name, '^[^:]*'), text_of_limit('=' .. name)
      local texts = { text_of_limit(of) or '{}', text_of_limit('=' .. of) or '{}', own }
      declared[of] = declared[of] or limit_in({ texts[1], texts[2] })
      known[name] = own and limit_in(texts) or declared[of]
    end
    return known[name]
  end
end

-- Returns when the next message of a key has a token, ms since the epoch; 0 without a rate.
local function next_token(key, limit)
  return limit.pause_ms and key.full - (limit.burst - 1) * limit.pause_ms or 0
end
