"""Queues that are spread over several: how an app declares them, and how they are seen as one."""
