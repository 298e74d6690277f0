-- The keys in which Redisson's layout keeps a queue's delayed messages. The first two are Redisson's own.
--   due     ZSET  entry of each message -> due time, ms since the epoch; see entry.lua
--   bodies  LIST  the same entries, and garbage: entries that have left `due`, see sweep.lua
--   notes   HASH  order: count of messages marked so far
--                 tail: how far all entries of the list are in the index of ids, see index_watermark.lua
--                 sought: the tail of the list when the latest search for other clients' messages began
--                 forgotten: HSCAN cursor of the search for records that can go, see forget.lua
--                 large: 1 where there may be large messages
--   ids     HASH  the index of messages by id, see records.lua and names.lua
local TYPES = { due = 'zset', bodies = 'list', notes = 'hash', ids = 'hash' }
