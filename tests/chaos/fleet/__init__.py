"""The processes of a run, and what they do."""
