"""Takes messages for a channel: with one taker, or in hash slots with one for each queue."""
