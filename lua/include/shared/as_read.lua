-- Tells whether a message is still as a caller has read it.
-- @include find

-- Returns the message that waits under an id, if it has the SHA-1 of the body and the due time that were read; else
-- nil, and the word for it: 'not_delayed', or 'changed' (another body or another due time waits under the id).
-- Fields of a row: id, sha, due. Cost O(log N).
local function as_read(keys, row)
  local message = stored(keys, row.id)
  if not message then
    return nil, 'not_delayed'
  elseif tonumber(message.due) ~= tonumber(row.due) or redis.sha1hex(message.body) ~= row.sha then
    return nil, 'changed'
  end
  return message
end
