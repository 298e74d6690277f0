"""What a message says, read and rewritten in one place: its due time, id, body and address. Knows no Redis."""
