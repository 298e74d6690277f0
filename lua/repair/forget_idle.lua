-- Removes a key of kombu's that nobody has used for long.
-- KEYS unused  LIST  replies that nobody has read; or a SET of bindings
-- ARGV idle_s  NUMBER  for how long nobody has read or changed it, s
-- Returns 'forgotten' or, when it expires by itself, is gone or was used since, 'left'
-- Atomic: nothing is removed that somebody has just used.
-- Cost: O(1); Redis frees the memory in the background
-- @unchecked

-- Neither command counts as a use.
if redis.call('PTTL', unused) ~= -1 or redis.call('OBJECT', 'IDLETIME', unused) < idle_s then
  return 'left'
end
redis.call('UNLINK', unused)
return 'forgotten'
