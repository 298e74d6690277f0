"""Work on whole queues: export, import, repair, and the change of the layout."""
