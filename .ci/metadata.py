"""How hatchling gets what follows from the names of ``pyproject.toml``."""

from pathlib import Path
from runpy import run_path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Names(MetadataHookInterface):
    """Fills in the fields that ``dynamic`` has."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds the fields to the metadata of the package."""
        metadata.update(run_path(str(Path(__file__).with_name("names.py")))["metadata"]())
