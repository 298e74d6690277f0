-- Returns the headers and the properties of a message: two tables, empty where the message has none.
local function parts_of(message)
  local is_json, parsed = pcall(cjson.decode, message)
  parsed = is_json and type(parsed) == 'table' and parsed or {}
  local function table_of(name)
    return type(parsed[name]) == 'table' and parsed[name] or {}
  end
  return table_of('headers'), table_of('properties')
end
