"""The consumer's side: checks before each wait, the queues to keep alive, and messages to put into the store."""
