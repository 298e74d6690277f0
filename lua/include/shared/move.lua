-- @include batch budget lateness due minutes

-- A read asks for as many messages as fit the buffer of 16 KB in which Redis gives a script its reply: Redis copies a
-- larger reply once more.
local REPLY, AT_MOST = 15000, 32

-- Moves messages that are due to the ends of their lists, the oldest first, until there are `count` or about `bytes`,
-- or it takes long, and counts them. Fields of `to`: keys, ready (the queue's lists), list_of (function from a priority
-- to its list), counts (key of the queue's counters), expire (x-expires in ms), is_large. Returns the number moved, the
-- number without a body, the due time of the first or nil. Cost O(log N) a message.
local function move_due(to, now, count, bytes)
  local keys, is_large, list_of = to.keys, to.is_large, to.list_of
  local usual, foremost, batch = list_of('0'), to.ready[1], new_batch()
  local moved, lost, ask, first = 0, 0, is_large and 1 or at_first(), nil
  local has_time = time_budget()
  local late -- how late messages are, where the first one is not punctual
  local function settle_batch()
    local pushed, without = push_batch(batch, keys, to.ready, to.expire)
    moved, lost, batch = moved + pushed, lost + without, new_batch()
  end

  while count > 0 and bytes > 0 do
    ask = math.min(ask, count)
    local members, bodies, priorities, size, due, last_due = read_due(keys, now, #batch.members, ask, not first)
    if #members == 0 then
      break
    elseif not first and now - due > PUNCTUAL then
      late = late_by(keys.due, now, tonumber(due), count)
    end
    local is_last = not has_time(#members) or #members < ask or ask == count or size >= bytes
    if late and (last_due or is_last) then
      late.last_ms = now - (last_due or redis.call('ZSCORE', keys.due, members[#members]))
    end
    if priorities or #batch.members > 0 or usual ~= foremost then
      hold(batch, members, bodies, priorities, list_of)
    else
      batch = { ready = { [usual] = bodies }, members = members, bodies = bodies, lost = 0 }
    end
    -- Messages for the first list are pushed before those for any other list.
    if leaves_in_parts() and is_for(batch, foremost) then
      settle_batch()
    end
    first, count, bytes = first or due, is_last and 0 or count - ask, bytes - size
    ask = is_large and 1 or math.max(1, math.min(4 * #members, math.floor(REPLY * #members / size), AT_MOST))
  end
  settle_batch()
  if late then
    count_late(to.counts, late, moved)
  elseif moved > 0 then
    redis.pcall('HINCRBY', to.counts, 'late:0', moved)
  end
  count_delivered(to.counts, now, moved, late)
  if lost > 0 then
    redis.pcall('HINCRBY', to.counts, 'lost', lost)
  end
  return moved, lost, first
end
