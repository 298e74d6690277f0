-- The number in `order`: how many messages have been marked, and in a bit that no count reaches, so that INCR and what
-- is left of it modulo 2^32 go on as before, whether the queue may have large messages.
local SEEN = 4503599627370496 -- 2^52

local function number_in(order_key)
  return tonumber(redis.call('GET', order_key) or 0) or 0
end

local function set_number(order_key, number)
  redis.call('SET', order_key, string.format('%.0f', number), 'KEEPTTL')
end
