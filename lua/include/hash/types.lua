-- The keys in which the layout hash keeps a queue's delayed messages. A mark, where a message needs one, stands before
-- the id in `due` and before the body in `bodies`; see marks.lua.
--   due     ZSET    id of each message -> due time, ms since the epoch
--   bodies  HASH    id of each message -> body, the only copy
--   notes   STRING  count of messages marked so far, and a bit for large ones, see large.lua
--   ids     ZSET    ids of the duplicates, and of tasks with a waiting key, see duplicates.lua
local TYPES = { due = 'zset', bodies = 'hash', notes = 'string', ids = 'zset' }
