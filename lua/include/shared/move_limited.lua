-- @include bucket lateness move pick push tally urgent

-- So many are read and pushed together.
local TOGETHER = 16

-- Moves the messages in the index to the ends of their lists, until there are `count` or about `bytes`, and counts
-- them. to: as for `move_limited`. Returns the number moved, the number without a body, the due time of the first or
-- nil, bytes of all. Cost O(log N) a message.
local function move_urgent(to, now, count, bytes)
  local moved, lost, size, first, lates, more = 0, 0, 0, nil, {}, true
  while more and moved + lost < count and size < bytes do
    local ask = math.min(to.is_large and 1 or TOGETHER, count - moved - lost)
    local members, dues
    members, dues, more = next_urgent(to.keys, to.urgent, now, ask)
    if #members > 0 then
      local bodies, priorities, read = read_picked(to.keys, members)
      local ready = {}
      for i, body in ipairs(bodies) do
        if body then
          local list = to.list_of(priorities[i])
          ready[list] = ready[list] or {}
          table.insert(ready[list], body)
          moved, lates[#lates + 1] = moved + 1, now - dues[i]
        else
          lost = lost + 1
        end
      end
      push(ready, to.first_list, to.expire)
      pull(to.keys, members, bodies)
      first, size = first or dues[1], size + read
    end
  end
  count_each(to.counts, lates)
  return moved, lost, first, size
end

-- Moves messages while there are tokens, urgent ones first where not all can leave. Fields of `to`: those for
-- `move_due`; bucket and urgent (keys), step_of (function from a priority to the number of its list). limit: rate and
-- burst. done: gets the fields moved, lost and first. Returns when to go on, or nil if none is held back.
-- Cost O(log N) a message.
local function move_limited(to, limit, now, count, bytes, done)
  local keys, bucket, urgent = to.keys, to.bucket, to.urgent
  local tokens, due = tokens_in(bucket, limit, now), redis.call('ZCOUNT', keys.due, '-inf', now)
  local was_held, may = redis.call('HGET', bucket, 'held'), math.min(count, math.floor(tokens + 0.001))
  local all_known, last = true, #KEYS - to.first_list
  if last > 0 and due > tokens and not are_foremost(keys, math.max(may, 1), to.step_of) then
    if may == 0 or redis.call('ZCOUNT', urgent, 0, 0) < may then
      all_known = look_on(keys, bucket, urgent, now, to.step_of, last)
    end
    local size
    done.moved, done.lost, done.first, size = move_urgent(to, now, may, bytes)
    bytes = bytes - size
  end
  local moved, lost, first = move_due(to, now, may - done.moved - done.lost, bytes)
  done.moved, done.lost, done.first = done.moved + moved, done.lost + lost, done.first or first
  local left = math.max(0, tokens - done.moved)
  local is_over = due <= done.moved + done.lost
  local held = not is_over and next_step(limit, left, now) or nil
  held = held and held > now and held or nil
  if done.moved > 0 or held or was_held then
    note_tokens(bucket, urgent, limit, now, left, held, is_over)
  end
  if was_held then
    tally(to.counts, { held_back = done.moved })
  end
  return held and (all_known and held or math.min(held, now + STEP_MS))
end
