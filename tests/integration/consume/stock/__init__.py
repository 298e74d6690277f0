"""What consumers of kombu and workers of Celery do on the stock transport, and so with each way of consuming."""
