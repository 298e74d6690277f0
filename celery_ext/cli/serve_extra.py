"""What the server of ``delayq serve`` needs beside the package itself."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

#: Top-level modules of the packages of the extra.
MODULES = frozenset({"a2wsgi", "httptools", "jinja2", "msgspec", "prometheus_client", "starlette", "uvicorn"})


@contextmanager
def needs_extra() -> Iterator[None]:
    """Says what to install if an import fails for lack of the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in MODULES:
            raise
        raise click.ClickException(
            f"{error.name} is not installed; this needs the extra: pip install 'kombu-delayq[serve]'"
        ) from error
