-- Ends the work on a request with an idempotency key: keeps its answer, or lets the next caller work on it.
-- KEYS answer  HASH  what was asked for, when, by whom it is worked on, and the answer; with a TTL
-- ARGV name  of the caller
-- ARGV how   'keep' (the answer), 'forget' (nothing was done: the key is new again), 'yield' (nobody knows)
-- ARGV kept  the answer, with 'keep'
-- Returns 'ended'; or 'lost', with nothing changed, when another has claimed the key meanwhile, or it has expired
-- Atomic: only the caller that works on the key ends its claim.
-- Cost: O(1)

if redis.call('HGET', answer, 'by') ~= name then
  return 'lost'
end
if how == 'forget' then
  redis.call('DEL', answer)
else
  -- A full Redis refuses a script whose first write needs memory, and lets later writes pass.
  redis.call('HDEL', answer, 'till')
  if how == 'keep' then
    redis.call('HSET', answer, 'answer', kept)
  end
end
return 'ended'
