"""``delayq demo``."""

import click

from celery_ext.cli.output import table
from celery_ext.demo.private_redis import NoRedisServer, PrivateRedis


@click.command()
def demo() -> None:
    """Watch delayed tasks arrive while a worker is killed; takes about 20 s.

    The demo starts a private Redis and two real Celery workers, stops them again, and touches nothing of yours. One
    task fails and is retried by its delay chain until it succeeds, and one is cancelled. Exit code 0 means that every
    task ran as often as it should, and none ran early.
    """
    from celery_ext.demo.run import Demo, ending_on_signals  # imports a Celery app

    try:
        with ending_on_signals(), PrivateRedis() as server:
            verdict = Demo(server).run()
    except NoRedisServer as error:
        raise click.ClickException(str(error)) from error
    click.echo("\n".join(["", *table(["", "TASKS"], verdict.rows())]))
    click.echo("(the worst is from the moments after the kill: the other worker looks after the leader a moment later)")
    good = "nothing lost, nothing early, nothing double, nothing run that was cancelled"
    click.echo(f"\n{good if verdict.good else 'FAILED'}")
    raise SystemExit(0 if verdict.good else 1)
