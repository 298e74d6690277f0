"""Names of a package that are imported when they are first used, because their modules bring in much.

``celery_ext`` itself does the same on its own: pytest imports it in every project, and must not import Celery with it.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def later(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the ``__getattr__`` of a package.

    Args:
        package: Its ``__name__``.
        modules: By name, the module of the package that has it.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
