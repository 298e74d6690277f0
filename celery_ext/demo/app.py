"""The app of the demo: an ordinary Celery app with our transport, and its tasks."""

import os
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import redis
from celery import Celery

from celery_ext import install
from celery_ext.demo.arrivals import Arrival, Arrivals
from celery_ext.demo.tenants import TASK_S, Tenants

#: Retry schedule of ``notify``, which succeeds after the last step. No step is due near the kill.
CHAIN = "1s,1.5s,4s"

app = Celery("demo", broker=os.environ.get("DELAYQ_DEMO_BROKER"))
app.conf.broker_transport = "kombu_delayq.transport:Transport"
app.conf.broker_transport_options = {"limits": {"tenant": {}}}
app.conf.task_ignore_result = True
app.conf.worker_prefetch_multiplier = 1
install(app)


class NotAccepted(Exception):
    """The receiver did not accept a notification."""


@app.task(bind=True, acks_late=True)
def remind(self: Any, number: int) -> None:
    """Notes that it ran."""
    _note(self.request, number)


@app.task(bind=True, acks_late=True, delay_chain=CHAIN, autoretry_for=(NotAccepted,))
def notify(self: Any, number: int) -> None:
    """Notes each run, and fails until its chain has no step left."""
    _note(self.request, number)
    if self.request.retries < len(self.delay_chain):
        raise NotAccepted


@app.task(limit=("tenant", "tenant"))
def convert(tenant: str, number: int) -> None:
    """Notes that it began, and works for a moment."""
    Tenants(redis.Redis.from_url(os.environ["DELAYQ_DEMO_ARRIVALS"])).note(tenant, number)
    time.sleep(TASK_S)


@app.task(name="mail.send")
def send_mail(to: str, subject: str) -> None:
    """Does nothing, in place of sending a mail."""


@app.task(name="reports.build")
def build_report(day: str, *, formats: Sequence[str] = ("pdf",)) -> None:
    """Does nothing, in place of building a report."""


@app.task(
    name="billing.charge", delay_chain="3s,20s,2m", autoretry_for=(NotAccepted,), dead_letter_queue="billing.dead"
)
def charge(customer: str, amount: float, *, works: bool = True) -> None:
    """Fails for some customers until its chain has no step left, and becomes a dead letter."""
    if not works:
        raise NotAccepted(f"the card of {customer} was declined")


def _note(request: Any, number: int) -> None:
    at = time.time()
    late_ms = (at - datetime.fromisoformat(request.eta).timestamp()) * 1000 if request.eta else 0.0
    worker = request.hostname.partition("@")[0]
    arrivals = Arrivals(redis.Redis.from_url(os.environ["DELAYQ_DEMO_ARRIVALS"]))
    arrivals.write(Arrival(number, worker, late_ms, at, request.retries))
