"""What `delayq doctor` looks for: settings, servers and processes that keep delayed tasks from running well."""
