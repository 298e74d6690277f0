"""What a message says: when it is due, its id, its priority, its body. Knows no Redis."""
