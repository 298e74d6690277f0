"""The store's operations for consumers: messages leave their queues, are acknowledged or go back."""
