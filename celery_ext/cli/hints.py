"""Says where else delayed tasks are: under other key prefixes, or in workers of an app that is not switched over."""

from collections.abc import Mapping

from celery import Celery

from celery_ext.connection import uses_delayq

#: How many prefixes are named.
PREFIXES_NAMED = 5


def stock_transport(app: Celery | None) -> str | None:
    """Returns the name of the transport that an app itself uses, if it is not ours; else None."""
    if app is None:
        return None
    for connection in (app.connection_for_write(), app.connection_for_read()):
        try:
            ours = uses_delayq(connection)
        except (ImportError, KeyError, AttributeError):  # the app's transport does not exist, so it is not ours
            ours = False
        if not ours:
            return str(connection.transport_cls)
    return None


def prefixes_in_words(prefixes: Mapping[str, int], *, app: bool) -> str:
    """Returns a hint about delayed messages under other key prefixes; an empty text if there are none.

    Args:
        prefixes: Number of messages by key prefix.
        app: Whether the command takes its options from an app.
    """
    if not prefixes:
        return ""
    found = [f"{count:,} with {_named(prefix)}" for prefix, count in list(prefixes.items())[:PREFIXES_NAMED]]
    more = ["…"] if len(prefixes) > PREFIXES_NAMED else []
    [example, *_] = prefixes
    how = f"give -o global_keyprefix={example or repr('')}, or " if not app else ""
    return (
        f"delayed messages of other key prefixes, not looked at here: {', '.join(found + more)}. "
        f"To reach them, {how}run it as `celery -A app delayq …` with the app that has the prefix"
    )


def _named(prefix: str) -> str:
    return f"global_keyprefix {prefix!r}" if prefix else "none"
