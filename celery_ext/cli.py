"""The ``delayq`` command."""

import click


@click.group()
def delayq() -> None:
    """Delayed messages of Celery on Redis."""


main = delayq
