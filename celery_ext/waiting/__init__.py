"""Tasks that wait: read, cancelled, rescheduled, run now, by id or by due time."""
