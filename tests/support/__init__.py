"""What tests of several files use."""

from pathlib import Path

#: The directory of the repository.
ROOT = Path(__file__).parents[2]
