"""The text of a call's arguments in its message, as Celery writes it."""

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from celery.utils.saferepr import saferepr as saferepr_of_celery

#: Values of these types are shown as ``str`` shows them.
_AS_STR = frozenset((int, float, bool, type(None)))
#: Values of these types are shown as ``repr`` shows them.
_AS_REPR = frozenset((date, datetime, Decimal, UUID))


def saferepr(arguments: Any, most: int, levels: int) -> str:
    """Returns the text of Celery's ``saferepr``, several times as fast for short arguments without containers in them.

    Args:
        arguments: Positional or keyword arguments.
        most: Celery cuts off texts of this many characters or more.
        levels: Depth to which containers are shown.

    Source: celery.utils.saferepr
    """
    flat = _flat(arguments) if levels >= 0 else None
    return flat if flat is not None and len(flat) < most else saferepr_of_celery(arguments, most, levels)


def _flat(arguments: Any) -> str | None:
    """Returns the text of arguments without containers in them; None for others."""
    kind = type(arguments)
    if kind in (tuple, list) and _AS_STR.issuperset(map(type, arguments)):
        return repr(arguments)
    if kind is dict:
        names, values = texts_of(arguments), texts_of(arguments.values())
        if names is None or values is None:
            return None
        return "{" + ", ".join([f"{name}: {value}" for name, value in zip(names, values, strict=True)]) + "}"
    values = texts_of(arguments) if kind in (tuple, list) else None
    if values is None:
        return None
    if kind is list:
        return f"[{', '.join(values)}]"
    return f"({values[0]},)" if len(values) == 1 else f"({', '.join(values)})"


def texts_of(values: Iterable[Any]) -> list[str] | None:
    """Returns the text of each value in a container that is not cut off.

    Returns:
        The texts; None if a value is a container or bytes, which Celery may cut off by themselves, or of a type that
        is not known here.
    """
    texts = []
    for value in values:
        kind = type(value)
        if kind is str:
            texts.append("'" + value.replace("'", "\\'") + "'")
        elif kind in _AS_STR:
            texts.append(str(value))
        elif kind in _AS_REPR:
            texts.append(repr(value))
        else:
            return None
    return texts
