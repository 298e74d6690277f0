-- @include key_limit key_turn sub_queue

-- Takes the message whose turn it is, unless its step is behind another one. by: has the function `limit`, the number
-- free, and the list taken of tags and their places; gets is_short where no process is free for it. Cost O(log N).
local function take_turn(sub, by, step, tag)
  while true do
    local name, score = unpack(redis.call('ZRANGE', sub.base .. ':turns', 0, 0, 'WITHSCORES'))
    if not name or math.floor(tonumber(score) / STEP) > step then
      return nil
    end
    local key, limit = key_in(sub, name), by.limit(name)
    if tag and by.free <= 0 and (limit.bound < math.huge or limit.pause_ms) then
      by.is_short = true
      return nil
    end
    key.bound = limit.bound
    local found = next_in(sub, name, 2)
    if #found > 0 and next_token(key, limit) > sub.now then
      set_rest(sub, name, next_token(key, limit))
    elseif #found > 0 and that_may(key) > 0 then
      redis.call('ZREM', sub.base .. ':parked', found[1])
      sub.turn = math.max(sub.turn, key.time)
      key.waiting, key.time = key.waiting - 1, sub.turn + 1 / limit.weight
      if tag and name ~= '' then
        key.running = key.running + 1
        by.taken[#by.taken + 1] = tag
        by.taken[#by.taken + 1] = sub.base .. '\0' .. string.sub(found[1], #name + 2, #name + 2) .. name
      end
      key.full = limit.pause_ms and math.max(key.full, sub.now) + limit.pause_ms or 0
      enter(sub, name, found[2])
      if found[2] and next_token(key, limit) > sub.now then
        set_rest(sub, name, next_token(key, limit))
      end
      return string.sub(found[1], #name + 19)
    else
      key.waiting = #found > 0 and key.waiting or 0
      redis.call('ZREM', sub.base .. ':turns', name)
    end
  end
end
