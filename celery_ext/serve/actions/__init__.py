"""Actions on many messages, for the page and for the HTTP API alike."""
