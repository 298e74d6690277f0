"""Waiting messages become a DataFrame."""
