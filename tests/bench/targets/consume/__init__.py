"""How fast a worker consumes, at what cost, and how soon it begins a single task, next to stock."""
