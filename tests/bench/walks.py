"""Which files of this project a call enters: ``python -m tests.bench.walks``. A reader opens as many."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from types import FrameType
from typing import Any

import click
import redis
from celery import Celery

import celery_ext
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from kombu_delayq.transfer.worker import TransferWorker
from tests.bench.targets.app import OURS, TASK, make_app
from tests.support.conditions import until
from tests.support.store.tuned import tuned
from tests.support.workers.held import in_hand

ROOT = Path(__file__).parents[2]
PACKAGES = tuple(f"{ROOT / name}/" for name in ("kombu_delayq", "celery_ext"))
HOUR_S = 3600


class Walk:
    """Notes the files that threads enter, in order, and how often one step leads from a file into another."""

    def __init__(self) -> None:
        self._files: dict[str, None] = {}
        self._is_noted = False
        self.moves = 0

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Notes what the threads do from now on that are followed."""
        self._is_noted = True
        yield
        self._is_noted = False

    def follow(self, frame: FrameType, event: str, _: object) -> None:
        """Notes a step of a thread; for ``sys.setprofile``."""
        file = frame.f_code.co_filename
        if self._is_noted and event == "call" and file.startswith(PACKAGES):
            self._files[file] = None
            self.moves += frame.f_back is None or frame.f_back.f_code.co_filename != file

    @property
    def files(self) -> list[str]:
        """The files, from the root of the project, in the order in which they were entered first."""
        return [str(Path(file).relative_to(ROOT)) for file in self._files]


def _published(app: Celery, _: PrivateRedis, walk: Walk, **options: Any) -> None:
    task = app.tasks[TASK]
    task.apply_async((0.0,), **options)
    sys.setprofile(walk.follow)
    with walk.noted():
        task.apply_async((0.0,), **options)
    sys.setprofile(None)


def _cancelled(app: Celery, _: PrivateRedis, walk: Walk) -> None:
    first, second = [app.tasks[TASK].apply_async((0.0,), countdown=HOUR_S).id for _ in range(2)]
    celery_ext.cancel(app, first)
    sys.setprofile(walk.follow)
    with walk.noted():
        assert celery_ext.cancel(app, second)
    sys.setprofile(None)


def _polled(_: Celery, server: PrivateRedis, walk: Walk) -> None:
    def connect() -> DelayStore:
        return DelayStore(redis.Redis(port=server.port), options=tuned())

    def transfer(value: str) -> None:
        store.delivery.offer("q", Offer(value, "+300", 0, value))
        until(lambda: store.client.lindex("q", 0) == value.encode())
        sleep(2 * store.options.poll_interval)  # one poll begins and ends meanwhile

    store = connect()
    threading.setprofile(walk.follow)
    worker = TransferWorker(connect)
    worker.start()
    threading.setprofile(None)
    until(lambda: worker.leading)
    transfer("first")
    with walk.noted():
        transfer("second")
    worker.stop(10)
    store.close()


def _fetched(app: Celery, server: PrivateRedis, walk: Walk) -> None:
    # This import brings Celery's commands, and with them our part in all apps; a publisher has neither.
    from celery.contrib.testing.worker import start_worker

    @app.task(name="bench.follow", shared=False)
    def follow() -> None:
        sys.setprofile(walk.follow)  # the thread of a solo pool fetches and acknowledges, too
        ran.append(None)

    def run() -> None:
        count = len(ran)
        follow.delay()
        until(lambda: len(ran) > count and not in_hand(server.client()))

    ran: list[None] = []
    celery_ext.install(app)
    with start_worker(app, pool="solo", perform_ping_check=False):
        run()
        with walk.noted():
            run()


#: The walks, and the most files that each is to enter.
WALKS: dict[str, tuple[Callable[[Celery, PrivateRedis, Walk], None], int]] = {
    "delay()": (_published, 6),
    "countdown=10": (partial(_published, countdown=10), 10),
    "a poll with a transfer": (_polled, 14),
    "cancel with a journal": (_cancelled, 18),
    "fetch and ack": (_fetched, 18),
}


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(WALKS)), help="Only this walk; may be repeated.")
@click.option("--short", is_flag=True, help="Leave out the names of the files.")
def main(only: tuple[str, ...], short: bool) -> None:
    """Prints the files that each call enters the second time, when all is imported and connected."""
    for name, (call, most) in WALKS.items():
        if name not in (only or WALKS):
            continue
        walk = Walk()
        with ExitStack() as opened:
            server = opened.enter_context(PrivateRedis())
            folder = opened.enter_context(TemporaryDirectory(prefix="delayq-walks-"))
            app = make_app(server.url, OURS)
            if "journal" in name:
                app.conf.broker_transport_options = {"journal_url": f"sqlite:///{folder}/journal.db", "journal": "all"}
            opened.callback(app.close)
            call(app, server, walk)
        click.echo(f"{name}: {len(walk.files)} files (wanted: {most}), {walk.moves} moves")
        if not short:
            click.echo("".join(f"  {file}\n" for file in walk.files))


if __name__ == "__main__":
    main(prog_name="python -m tests.bench.walks")
