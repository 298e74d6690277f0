-- Removes what is left of a queue whose last message another client has removed: garbage in the list, and our notes.
-- Without garbage Redisson's keys are not touched. Cost O(1).
local function clear(keys)
  if redis.call('EXISTS', keys.due) == 0 and redis.call('EXISTS', keys.backup, keys.order, keys.twins) > 0 then
    redis.call('UNLINK', keys.backup, keys.order, keys.twins)
  end
end
