"""Answers with pages, one module for each kind of page."""
