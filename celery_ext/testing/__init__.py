"""What a test of an app gets: the pytest fixture ``delayed_tasks``, and a broker in memory behind it."""
