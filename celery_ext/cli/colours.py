"""The few colours of what the commands print, and when there are any.

A coloured text has the codes of the terminal in it. ``click.echo`` takes them out where nobody wants them.
"""

import os

import click


def bad(text: str) -> str:
    """Returns a text in red: something is wrong or late."""
    return click.style(text, fg="red")


def warning(text: str) -> str:
    """Returns a text in yellow: something deserves a look."""
    return click.style(text, fg="yellow")


def good(text: str) -> str:
    """Returns a text in green: all is well."""
    return click.style(text, fg="green")


def choice(*, refused: bool) -> bool | None:
    """Returns whether a command prints colours; None if that is so on a terminal alone.

    Source: https://no-color.org, https://force-color.org; where both are set, Python itself has none either.

    Args:
        refused: Whether the command line says that it shall not.
    """
    if refused or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return False if os.environ.get("TERM") == "dumb" else None


def for_terminal(text: str) -> str:
    """Returns a text as a terminal gets it: without colours if the command prints none."""
    context = click.get_current_context(silent=True)
    return click.unstyle(text) if context is not None and context.color is False else text


def width(text: str) -> int:
    """Returns how many characters of a text are seen."""
    return len(click.unstyle(text) if "\x1b" in text else text)


def shortened(text: str, length: int) -> str:
    """Returns a text of at most ``length`` characters, with an ellipsis where the end is missing.

    A text that is coloured as a whole stays so; of others the colours go.
    """
    if width(text) <= length:
        return text
    plain = click.unstyle(text)
    cut = f"{plain[: length - 1]}…"
    return text.replace(plain, cut) if plain in text else cut
