"""How an error message shows the value that it is about."""

_LONGEST = 200
_HEAD, _TAIL = 140, 50


def quoted(value: object) -> str:
    """Returns the repr of a value, its middle left out when it is longer than 200 characters."""
    try:
        text = repr(value)
    except Exception:  # an int of 5000 digits has none, and the message must not be about that
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST else f"{text[:_HEAD]} … {text[-_TAIL:]}"
