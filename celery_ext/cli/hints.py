"""Says where else delayed tasks are: under other key prefixes."""

from collections.abc import Mapping

#: How many prefixes are named.
PREFIXES_NAMED = 5


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
