"""The app of the fleet: tasks that do nothing but note that they ran."""

import os
import time
from datetime import UTC, datetime
from typing import Any

from celery import Celery
from celery.exceptions import Reject

from celery_ext import install
from tests.chaos.fleet.setup import KEYED_S, LETTERS, OURS, REPLAYED, STOCK, TICK, TICK_MS, VARIABLE, Setup
from tests.chaos.ledger.events import Ledger

TRANSPORT = "kombu_delayq.transport:Transport"
#: Delays of a delay chain, and of a plain retry, in s.
CHAIN_S = (0.5, 1.0, 1.5)
RETRY_S = 0.7


def make_app(setup: Setup) -> Celery:
    """Makes the app of a process. Tasks are acknowledged late, and a lost pool process gives its task back."""
    app = Celery("chaos", broker=setup.broker, set_as_current=False)
    app.conf.update(
        broker_transport=TRANSPORT if setup.by == OURS and "+" not in setup.broker.partition(":")[0] else None,
        broker_transport_options=setup.options_in_use(),
        broker_connection_max_retries=None,
        broker_connection_retry_on_startup=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        result_expires=None,  # else there is a periodic entry to clean up results
        task_default_queue="chaos.ours",
        # As long as an outage of Redis may last: Celery gives up a task whose retry cannot be published.
        task_publish_retry_policy={"max_retries": 60, "interval_start": 0.1, "interval_step": 0.1, "interval_max": 0.5},
        worker_prefetch_multiplier=4,
        worker_cancel_long_running_tasks_on_connection_loss=False,
    )
    if setup.by != STOCK:
        install(app, periodic=bool(setup.ticks_to))
        options = {"queue": setup.ticks_to, "missed": "all"}
        tick = {"task": "chaos.tick", "schedule": TICK_MS / 1000, "options": options}
        app.conf.beat_schedule = {TICK: tick} if setup.ticks_to else {}
    ledger = Ledger(setup.ledger, setup.name, setup.by)
    _add_tasks(app, ledger)
    _add_failing_tasks(app, ledger)
    return app


def _begin(ledger: Ledger, task: Any, task_id: str = "", number: int | None = None) -> tuple[str, int]:
    """Notes that a task begins. Returns its id and its try, for the note of its end."""
    request = task.request
    task_id, number = task_id or request.id, request.retries if number is None else number
    redelivered = (request.delivery_info or {}).get("redelivered")
    eta = datetime.fromisoformat(request.eta).timestamp() if request.eta else 0.0
    ledger.write_many([f"S {task_id} {number} {eta!r} {bool(redelivered):d} {time.time()!r}"])
    return task_id, number


def _add_tasks(app: Celery, ledger: Ledger) -> None:
    @app.task(name="chaos.tick", bind=True, shared=False)
    def tick(self: Any) -> None:
        due, now = datetime.fromisoformat(self.request.eta).timestamp(), repr(time.time())
        queue = self.request.delivery_info["routing_key"]
        # Nobody notes that it is published, so its first run does.
        ledger.write_many([f"I {self.request.id} {TICK} {queue} 0 {due!r} {now}", f"C {self.request.id} added {now}"])
        ledger.write("D", *_begin(ledger, self))

    @app.task(name="chaos.late", bind=True, shared=False)
    def late(self: Any) -> None:
        ledger.write("D", *_begin(ledger, self))

    @app.task(name="chaos.keyed", bind=True, shared=False)
    def keyed(self: Any) -> None:
        task_id, number = _begin(ledger, self)
        time.sleep(KEYED_S)
        ledger.write("D", task_id, number)

    @app.task(name="chaos.once", bind=True, shared=False)
    def once(self: Any, planned: str) -> None:
        ledger.write("D", *_begin(ledger, self, planned))  # those that are alike have one task id

    @app.task(name="chaos.early", bind=True, shared=False, acks_late=False)
    def early(self: Any) -> None:
        ledger.write("D", *_begin(ledger, self))


def _add_failing_tasks(app: Celery, ledger: Ledger) -> None:
    @app.task(name="chaos.retry", bind=True, shared=False, max_retries=None)
    def retry(self: Any, tries: int) -> None:
        task_id, number = _begin(ledger, self)
        if number < tries:
            # The eta is made from this clock's reading or a later one.
            ledger.write("N", task_id, number + 1, repr(time.time() + RETRY_S))
            _again(self, ledger, countdown=RETRY_S)
        ledger.write("D", task_id, number)

    @app.task(name="chaos.chain", bind=True, shared=False, delay_chain=",".join(f"{step}s" for step in CHAIN_S))
    def chain(self: Any, tries: int) -> None:
        task_id, number = _begin(ledger, self)
        if number < tries:
            ledger.write("N", task_id, number + 1, repr(time.time() + CHAIN_S[number]))
            _again(self, ledger)
        ledger.write("D", task_id, number)

    @app.task(name="chaos.letter", bind=True, shared=False, dead_letter_queue=LETTERS, dead_letter_on="failure")
    def letter(self: Any) -> None:
        task_id, _, replayed = self.request.id.partition(REPLAYED)
        ledger.write("D", *_begin(ledger, self, task_id, int(bool(replayed))))
        if not replayed:
            raise ValueError(task_id)


def _again(task: Any, ledger: Ledger, **options: Any) -> None:
    """Retries a task. Where Redis refuses the retry, the message goes back."""
    try:
        task.retry(**options)
    except Reject as reject:
        ledger.write("X", task.request.id, task.request.retries)
        raise Reject(reject.reason, requeue=True) from reject  # Celery's own has no requeue
    finally:
        ledger.write("D", task.request.id, task.request.retries)


if VARIABLE in os.environ:
    app = make_app(Setup.of_environment())


def eta_of(due: float) -> datetime:
    """Returns a due time as Celery takes it."""
    return datetime.fromtimestamp(due, UTC)
