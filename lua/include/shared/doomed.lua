-- @include parts

-- Returns a time as Celery writes it, in ISO 8601, in ms since the epoch; without a zone it is in UTC. Returns nil for
-- another text.
local function iso_ms(text)
  local year, month, day, hour, minute, second, zone =
    string.match(text, '^(%d%d%d%d)-(%d%d)-(%d%d)T(%d%d):(%d%d):([%d.]+)(.*)$')
  local sign, hours, minutes = string.match(zone or '', '^([+-])(%d%d):(%d%d)$')
  if not tonumber(second) or not (sign or zone == 'Z' or zone == '') then
    return nil
  end
  local offset = sign and tonumber(sign .. '1') * (hours * 60 + minutes) or 0
  if tonumber(month) <= 2 then -- a year begins in March, so that the day of a leap year is its last
    year, month = year - 1, month + 12
  end
  local days = 365 * year + math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400)
  days = days + math.floor((153 * (month - 3) + 2) / 5) + day - 719469
  return (((days * 24 + hour) * 60 + minute - offset) * 60 + second) * 1000
end

-- Whether a waiting message has expired, or will have when it is due: no worker will run it. The expiry of a task of
-- protocol 1 is not seen. Cost O(bytes).
local function is_doomed(message, now)
  if not string.find(message.body, '"expires"', 1, true) then
    return false
  end
  local expires = parts_of(message.body).expires
  local expires_ms = type(expires) == 'string' and iso_ms(expires)
  return expires_ms and expires_ms <= math.max(now, tonumber(message.due)) or false
end
