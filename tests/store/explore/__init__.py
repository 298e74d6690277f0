"""Every order of the store's operations on a few messages, as far as the time allows."""
