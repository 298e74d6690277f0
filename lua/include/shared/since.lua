-- Adds to `found` what says since when a message could have been consumed: its property `timestamp` and its eta, '' for
-- each that it has not. message: the reply to a read, an error for a user without the right. Cost O(bytes of it).
local function add_since(found, message)
  message = type(message) == 'string' and message or ''
  -- kombu writes the body first. In a text, a quote has a backslash before it.
  local head = message:find('", "content-encoding"', 1, true) or 1
  local properties = message:find('"properties": ?{', head) or #message
  found[#found + 1] = message:match('"timestamp": ?(%d+%.?%d*)[,}]', properties) or ''
  found[#found + 1] = message:match('"eta": ?"([^"\\]*)"', head) or ''
end
