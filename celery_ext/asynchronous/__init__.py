"""Async forms of the functions that talk to a broker, for asyncio: each call runs in a thread."""
