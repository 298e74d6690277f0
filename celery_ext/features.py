"""What features bring to the rooms that they do not own. Nothing there names a feature."""

import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from kombu_delayq.store import KeyNames

_ROOMS = Path(__file__).parent


@cache
def modules_of(name: str, *, but: str = "") -> tuple[ModuleType, ...]:
    """Imports and returns the modules of an agreed name, such as ``checks``, by the names of their folders.

    To remove a feature with its modules is to remove its folder. Each of them, and the front of its folder, can be
    imported without Spark or SQL, and but for ``metrics`` without a web server. It knows the room that asks.

    Args:
        name: The agreed name.
        but: The room that asks, which may have a module of this name itself.
    """
    found = []
    for room in pkgutil.iter_modules([str(_ROOMS)]):
        inside = pkgutil.iter_modules([str(_ROOMS / room.name)]) if room.ispkg and room.name != but else ()
        if any(module.name == name for module in inside):
            found.append(import_module(f"celery_ext.{room.name}.{name}"))
    return tuple(found)


def folders_of(name: str) -> list[Path]:
    """Returns the folders of an agreed name in the rooms, such as ``templates``, by the names of the rooms."""
    return sorted(path for path in _ROOMS.glob(f"*/{name}") if path.is_dir())


def key_names() -> list[type[KeyNames]]:
    """Returns the classes that name the keys of features: those in their modules ``keys``."""
    found = (member for module in modules_of("keys") for member in vars(module).values())
    return [kind for kind in found if isinstance(kind, type) and issubclass(kind, KeyNames) and kind is not KeyNames]
