"""What a Celery worker gets: the start, remote control and inspect for the tasks that wait in Redis."""
