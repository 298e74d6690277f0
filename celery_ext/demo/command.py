"""``delayq demo``."""

from contextlib import ExitStack
from functools import partial
from time import monotonic, sleep

import click

from celery_ext.cli.daemon import needs_extra
from celery_ext.cli.output import table
from celery_ext.cli.signals import signals_as_interrupt
from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import NoRedisServer, PrivateRedis

SECTION = "Run"
EXAMPLES = {
    "demo": {
        "delayq demo": "In this terminal",
        "delayq demo --serve": "A page to play with",
    },
}
#: How long the workers may take to start, in s.
START_S = 30.0


@click.command()
@click.option(
    "--serve",
    is_flag=True,
    help="Show the page of delayq serve instead, with workers and tasks to play with, until Ctrl-C.",
)
def demo(serve: bool) -> None:
    """Watch delayed tasks arrive while a worker is killed; takes about 20 s.

    The demo starts a private Redis and two real Celery workers, stops them again, and touches nothing of yours. First
    it shows how long a small tenant waits for a big one, without limits by key and with them. Then one task fails and
    is retried by its delay chain until it succeeds, and one is cancelled. Exit code 0 means that every
    task ran as often as it should, and none ran early.
    """
    try:
        if serve:
            _serve()
        else:
            _watch()
    except NoRedisServer as error:
        raise click.ClickException(str(error)) from error


def _watch() -> None:
    from celery_ext.demo.run import Demo  # imports a Celery app

    with signals_as_interrupt(), PrivateRedis() as server:
        verdict = Demo(server).run()
    click.echo("\n".join(["", *table(["", "TASKS"], verdict.rows())]))
    click.echo("(the worst is from the moments after the kill: the other worker looks after the leader a moment later)")
    good = "nothing lost, nothing early, nothing double, nothing run that was cancelled"
    click.echo(f"\n{good if verdict.good else 'FAILED'}")
    if verdict.good:
        click.echo("the same in the browser: delayq demo --serve, or in a checkout: make demo-serve")
    raise SystemExit(0 if verdict.good else 1)


def _serve() -> None:
    """Shows the page of a private broker. The user who started the demo may change everything there."""
    with needs_extra():
        from celery_ext.serve import server
        from celery_ext.serve.access import tokens
        from celery_ext.serve.access.identity import Action
        from celery_ext.serve.application import make_app
        from celery_ext.serve.service import ServeBroker
        from celery_ext.serve.settings import ServeSettings
    from celery_ext.demo.feed import QUEUES, Feed  # imports a Celery app
    from celery_ext.demo.run import DemoWorker

    with signals_as_interrupt(), ExitStack() as stack:
        redis = stack.enter_context(PrivateRedis())
        workers = [stack.enter_context(DemoWorker(name, redis, QUEUES)) for name in ("alice", "bob")]
        click.echo(f"private Redis on port {redis.port}; starting the workers alice and bob …")
        feed = Feed(redis)
        feed.fill()
        deadline = monotonic() + START_S
        while not all(worker.is_ready() for worker in workers):
            if monotonic() > deadline:
                raise click.ClickException(f"the workers did not start within {START_S:g} s")
            sleep(0.1)
        # Others on this machine reach the port, too. The token is known here alone, and ends with the demo.
        secret, path = tokens.new_secret(), redis.directory / "tokens.json"
        tokens.write_tokens(path, [tokens.Token("you", tokens.hash_of(secret), frozenset(Action), ("*",), ("*",))])
        broker = ServeBroker(feed.app, partial(feed.app.connection_for_read, transport=TRANSPORT))
        settings = ServeSettings(allow_write=True, tokens=path)
        stack.enter_context(feed)
        server.serve(
            make_app(broker, settings),
            server.listen("127.0.0.1", 0),
            lambda url: click.echo(f"open {url}login#{secret}\nand log in; Ctrl-C ends the demo"),
        )


COMMANDS = (demo,)
