"""The features that keep keys of their own in Redis: for whoever needs the names of all keys."""

from importlib import import_module

from kombu_delayq.store.keys import KeyNames

#: The modules with the names, and the classes in them. Each is imported without Spark, a web server or SQL.
_NAMES: dict[str, str] = {}


def key_names() -> list[type[KeyNames]]:
    """Returns the classes that name the keys of features."""
    return [getattr(import_module(module), name) for module, name in _NAMES.items()]
