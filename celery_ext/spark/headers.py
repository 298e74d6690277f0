"""Message headers that rows and options add to those of Celery."""

from typing import Any

#: Headers that Celery itself writes.
_CELERYS = frozenset(
    (
        *("lang", "task", "id", "shadow", "eta", "expires", "group", "group_index", "retries", "timelimit"),
        *("root_id", "parent_id", "argsrepr", "kwargsrepr", "origin", "ignore_result", "replaced_task_nesting"),
        *("stamped_headers", "stamps", "compression"),
    )
)


def check(found: object) -> dict[str, Any]:
    """Returns headers if they may be added.

    Raises:
        ValueError: They are no JSON object, or have headers that Celery itself writes.
    """
    if not isinstance(found, dict):
        raise ValueError('is not a JSON object, such as {"name": "value"}')
    own = sorted(_CELERYS & found.keys())
    if own:
        raise ValueError(f"sets headers that Celery itself writes: {', '.join(own)}")
    return found
