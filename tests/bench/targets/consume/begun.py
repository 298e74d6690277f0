"""How long until all tasks have begun that are due in the same instant."""

from collections.abc import Iterator
from datetime import UTC, datetime
from time import time

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store.types import Offer
from tests.bench.targets.consume.kinds import QUEUE, STOCK, TAKE, Bench, bench, copies, template
from tests.bench.targets.load import make_store
from tests.bench.targets.report import Figure
from tests.bench.targets.worker import answers
from tests.support.conditions import until

COUNT = 20_000
#: From the start of loading to the due time, in s. A worker of stock Celery has all messages in its memory then.
LEAD_S, STOCK_LEAD_S = 6.0, 30.0
#: How long all tasks may take to begin, in s.
PATIENCE_S = 120.0


class TooSoon(Exception):
    """The due time came before a worker of stock Celery had taken all messages."""


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Lets the tasks come due in a worker with Celery's defaults."""
    count = COUNT // 10 if quick else COUNT
    with bench(TAKE) as one:
        ours_s = _begun_s(one, count, LEAD_S)
    stock_s, lead_s = None, STOCK_LEAD_S * count / COUNT + LEAD_S
    while stock_s is None:
        with bench(STOCK) as one:
            try:
                stock_s = _begun_s(one, count, lead_s)
            except TooSoon:
                lead_s *= 2
    name = f"{count:,} due at once, prefork, until all have begun"
    note = f"one run; with stock the messages were sent {lead_s:.0f} s before, and all of them were in the worker"
    yield Figure(f"{name}, take / stock", ours_s / stock_s, "", 1.0, note=note)
    for kind, took_s in ((TAKE, ours_s), (STOCK, stock_s)):
        yield Figure(f"{name}, {kind.name}", took_s, "s")


def _begun_s(one: Bench, count: int, lead_s: float) -> float:
    """Sends tasks that are all due so long after, in s. Returns how long after the due time the last one began, in s.

    Raises:
        TooSoon: As its docstring says.
    """
    client = one.server.client()
    with one.worker():
        answers(one.server.url)
        due = time() + lead_s
        for page in copies(template(eta=datetime.fromtimestamp(due, UTC)), count):
            if one.kind is STOCK:
                client.lpush(QUEUE, *[message for _, message in page])
            else:
                offers = [Offer(task_id, repr(due * 1000), 0, message) for task_id, message in page]
                make_store(client, "hash").delivery.offer(QUEUE, *offers)
        if one.kind is STOCK:
            until(lambda: not client.llen(QUEUE) or time() > due, lead_s + 1, "the worker has taken all messages")
        if time() > due:
            raise TooSoon
        until(lambda: one.journal.count() >= count, lead_s + PATIENCE_S, "all tasks have begun")
        # The argument of the tasks is 0, so what they noted is when they began.
        begun = sorted(one.journal.late_s())
        if len(begun) != count or begun[0] < due:
            raise RuntimeError(f"{len(begun)} tasks of {count}; the first began {begun[0] - due} s after it was due")
        return begun[-1] - due
