"""Reads waiting tasks by id or due time; cancels, reschedules or runs them by id."""
