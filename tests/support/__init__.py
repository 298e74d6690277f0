"""Helpers that tests of several files share."""

from pathlib import Path

#: The directory of the repository.
ROOT = Path(__file__).parents[2]
