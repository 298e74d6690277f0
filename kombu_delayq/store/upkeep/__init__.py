"""The store's operations that keep queues in order: damage is found and mended, dead letters are read and sent on."""
