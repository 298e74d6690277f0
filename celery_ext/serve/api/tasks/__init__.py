"""Waiting tasks: found, listed, changed."""
