-- Ids without the marks that index members have.
-- @include marks

local byte = string.byte

-- Returns the ids of index members, which is the same table when none is marked.
local function ids_of(members)
  local ids = members
  for i = 1, #members do
    if byte(members[i]) == MARK_BYTE then
      ids = ids == members and { unpack(members) } or ids
      ids[i] = id_of(members[i])
    end
  end
  return ids
end
