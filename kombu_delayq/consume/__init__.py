"""The consumer's side: what it checks before each wait, which queues it keeps alive, what it puts into the store."""
