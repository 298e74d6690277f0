"""Orders, and their payment."""
