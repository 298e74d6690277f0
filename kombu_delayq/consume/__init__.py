"""The consumer's side: what it looks at before it waits, and which queues it keeps alive."""
