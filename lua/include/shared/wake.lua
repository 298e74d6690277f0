-- Sends the wake message of a new head to the transfer workers that listen. `queue` is part of it on the channel of all
-- queues, and nil on a queue's own one, where Redisson's services listen too; `kombu_delayq/store/wake.py` reads it.
-- A message that cannot be sent (ACL) costs one poll interval, so it never fails the publish. Cost O(listeners).
local function wake_up(channel, due, queue)
  redis.pcall('PUBLISH', channel, queue and due .. ' ' .. queue or due)
end
