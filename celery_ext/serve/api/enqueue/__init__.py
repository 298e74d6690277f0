"""Enqueues tasks: many requests at once become one message page for Redis."""
