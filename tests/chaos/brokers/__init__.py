"""The Redis of a run."""
