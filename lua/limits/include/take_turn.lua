-- @include key_limit key_turn member sub_queue

-- A consumer without a free process gets messages of a key only while the key has less than this part of its bound.
local PREFETCHED = 1 / 10

-- Returns the member of a key's sub-queue that goes next and the one behind it, without those that were taken.
-- What it reads at once doubles. Cost O(log N).
local function next_two(sub, name, key)
  local ahead = key.ahead or { first = 1 }
  key.ahead = ahead
  if not ahead[ahead.first + 1] and not ahead.is_all then
    local count, after = 2 * math.max(#ahead, 1), #ahead > 0 and '(' .. ahead[#ahead] or '[' .. name .. '\0'
    local found = redis.call('ZRANGEBYLEX', sub.base .. ':parked', after, '(' .. name .. '\1', 'LIMIT', 0, count)
    for _, member in ipairs(found) do
      ahead[#ahead + 1] = member
    end
    ahead.is_all = #found < count
  end
  return ahead[ahead.first], ahead[ahead.first + 1]
end

-- Takes the message whose turn it is, unless its step is behind another one. by: has the function `limit`, the number
-- free, and the list taken of tags and their places; gets is_short where no process is free for it. Cost O(log N).
local function take_turn(sub, by, step, tag)
  while true do
    local name, score = unpack(redis.call('ZRANGE', sub.base .. ':turns', 0, 0, 'WITHSCORES'))
    if not name or math.floor(tonumber(score) / STEP) > step then
      return nil
    end
    local key, limit = key_in(sub, name, true), by.limit(name)
    if tag and by.free <= 0 and (limit.pause_ms or key.running + 1 > PREFETCHED * limit.bound) then
      by.is_short = true
      return nil
    end
    key.bound = limit.bound
    local member, behind = next_two(sub, name, key)
    if member and next_token(key, limit) > sub.now then
      set_rest(sub, name, next_token(key, limit))
    elseif member and that_may(key) > 0 then
      key.ahead.first = key.ahead.first + 1
      sub.taken[#sub.taken + 1] = member
      sub.turn = math.max(sub.turn, key.time)
      key.waiting, key.time = behind and key.waiting - 1 or 0, sub.turn + 1 / limit.weight
      if tag and name ~= '' then
        key.running = key.running + 1
        by.taken[#by.taken + 1] = tag
        by.taken[#by.taken + 1] = sub.base .. '\0' .. order_in(name, member) .. name
      end
      key.full = limit.pause_ms and math.max(key.full, sub.now) + limit.pause_ms or 0
      enter(sub, name, behind)
      if behind and next_token(key, limit) > sub.now then
        set_rest(sub, name, next_token(key, limit))
      end
      return message_in(name, member)
    else
      key.waiting = member and key.waiting or 0
      redis.call('ZREM', sub.base .. ':turns', name)
    end
  end
end
