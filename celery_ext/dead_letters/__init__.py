"""Dead letters: tasks that failed for good, how they are buried, read and replayed."""
