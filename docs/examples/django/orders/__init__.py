"""Orders, and reminders of those that nobody pays."""
