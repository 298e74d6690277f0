"""What kombu-delayq adds for the users of Celery."""
