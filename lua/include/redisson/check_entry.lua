-- @include entry index_watermark names records unindex

-- Checks an entry, and with `mend` mends it. Returns 'sound'; 'gone': there is no such entry; 'lost': the entry has no
-- message, and is removed; 'unnamed': the entry has no record for its id, and gets one. Another client's entry without
-- a record is sound while a search for such entries is still to come. Cost O(log N).
local function check_entry(keys, entry, mend)
  local due_ms = redis.call('ZSCORE', keys.due, entry)
  local message = due_ms and message_of(entry)
  if not due_ms then
    return 'gone'
  end
  local id = names(keys, { entry }, { message })[1]
  if not message then
    if mend then
      redis.call('ZREM', keys.due, entry)
      unindex(keys, { entry }, { id })
    end
    return 'lost'
  end
  local is_known, others = is_indexed(keys, id, due_ms, entry)
  if is_known or not is_ours(entry) and not is_all_indexed(keys) then
    return 'sound'
  end
  if mend then
    index(keys, id, others, due_ms, entry, message)
  end
  return 'unnamed'
end
