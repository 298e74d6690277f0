"""``delayq queues``: empties queues, pauses them, and resumes them."""

import click
from redis.exceptions import NoPermissionError

from celery_ext.cli.broker import CliBroker, broker_in_words
from celery_ext.cli.options import confirm, json_option, known_queues, queues_argument, yes_option
from celery_ext.cli.output import escaped, json_line, number_of, print_stderr
from celery_ext.waiting import pause_queue, resume_queue
from kombu_delayq.audit import audited
from kombu_delayq.store import DelayStore


@click.group()
def queues() -> None:
    """Change whole queues: purge, pause, resume."""


@queues.command()
@queues_argument(required=True)
@yes_option
@json_option()
@click.pass_obj
def purge(broker: CliBroker, queues: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove all delayed messages of queues.

    Their tasks will never run, and their results stay as they are. Messages that are ready for a consumer stay; `celery
    purge` removes both kinds.
    """
    with broker.store() as (connection, store):
        names = known_queues(broker, store, queues)
        sizes = {name: size for name in names if (size := _counted(store, name)) is not None}
        if sizes:
            of = ", ".join(f"{size:,} of queue {escaped(name)}" for name, size in sizes.items())
            confirm(f"Remove all delayed messages, now {of}, on {broker_in_words(connection)}?", yes=yes)
        for name, size in sizes.items():
            with audited("purge", {"queue": name}, of=size) as counts:
                counts["removed"] = removed = store.queues.purge(name)
            fields = {"queue": name, "removed": removed}
            text = f"queue {escaped(name)}: {number_of(removed, 'delayed message')} removed"
            click.echo(json_line(fields) if as_json else text)
    if set(queues) - set(sizes):
        raise SystemExit(1)


@queues.command()
@queues_argument(required=True)
@click.pass_obj
def pause(broker: CliBroker, queues: tuple[str, ...]) -> None:
    """Let workers take nothing more from queues, until `resume`.

    What they have in hand goes on, and what comes due is still moved to its queue, where it waits. Workers on the stock
    transport, or with `consume="brpop"`, do not know pauses.
    """
    with broker.store() as (_, store):
        of_app = broker.app.amqp.queues if broker.app is not None else ()
        names = [name for name in dict.fromkeys(queues) if name in of_app or store.queues.exists(name)]
        for name in names:
            click.echo(f"queue {escaped(name)}: {pause_queue(store, name)}")
    if unknown := sorted(set(queues) - set(names)):
        for name in unknown:
            print_stderr(f"queue {name!r} is not known: nobody has published to it or consumed it")
        raise SystemExit(1)


@queues.command()
@queues_argument(required=True)
@click.pass_obj
def resume(broker: CliBroker, queues: tuple[str, ...]) -> None:
    """Let workers take from paused queues again, within a second."""
    with broker.store() as (_, store):
        for name in dict.fromkeys(queues):
            click.echo(f"queue {escaped(name)}: {resume_queue(store, name)}")


def _counted(store: DelayStore, queue: str) -> int | None:
    try:
        [stats] = store.figures.overview([queue])
        error = stats.error
    except NoPermissionError as refusal:
        error = str(refusal)
    if not error:
        return stats.delayed
    print_stderr(f"queue {queue!r}: {error}")  # such as for a key of another type; the other queues go on
    return None
