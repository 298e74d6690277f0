-- What a bulk job counts for each queue, in its HASH `counting`.

-- Adds to a count of a queue, if there is something to add. Cost O(1).
-- what: 'sent', 'staged', 'repeated' or 'cancelled'.
local function count_in(counting, what, queue, number)
  if number ~= 0 then
    redis.call('HINCRBY', counting, what .. ':' .. queue, string.format('%d', number))
  end
end

-- Counts what a call has written. Cost O(1).
-- what: 'sent' or 'staged', of `count` messages; elsewhere: number of those that wait elsewhere, and count as sent;
-- repeated: number of those that the job had before.
local function count_chunk(counting, queue, now, what, count, elsewhere, repeated)
  redis.call('HINCRBY', counting, 'enqueued', count + elsewhere)
  redis.call('HSET', counting, 'wrote', string.format('%.17g', now))
  count_in(counting, what, queue, count)
  count_in(counting, 'sent', queue, elsewhere)
  count_in(counting, 'repeated', queue, repeated)
end
