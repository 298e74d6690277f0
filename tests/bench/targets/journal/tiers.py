"""What a message costs in each place where it may wait: memory, disk, and the time to publish and to cancel it."""

from collections.abc import Iterator
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, time

import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import JournaledStore
from celery_ext.waiting import by_id
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.types import Offer
from tests.bench.targets.journal.filled import postgres
from tests.bench.targets.load import BODY_BYTES, message
from tests.bench.targets.report import Figure

#: Delays in s: a message that waits in Redis, and one that waits in the journal.
NEAR_S, FAR_S = 3600.0, 40 * 86_400.0
#: Messages of a page, and messages that are published and cancelled one by one.
PAGE, SINGLE = 200, 200


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Fills each place with messages of 1 KB in turn."""
    number = 10_000 if quick else 100_000
    with TemporaryDirectory() as folder, postgres() as database:
        places = {
            "Redis, hash": (NEAR_S, {}),
            "Redis, list": (NEAR_S, {"backup": "list"}),
            "far, SQLite": (FAR_S, {"journal_url": f"sqlite:///{folder}/far.db"}),
            "far, PostgreSQL": (FAR_S, {"journal_url": database.make_schema()}),
            "all, SQLite": (NEAR_S, {"journal_url": f"sqlite:///{folder}/all.db", "journal": "all"}),
            "all, PostgreSQL": (NEAR_S, {"journal_url": database.make_schema(), "journal": "all"}),
        }
        for place, (delay_s, options) in places.items():
            yield from _figures(server, place, delay_s, options, number)


def _figures(
    server: PrivateRedis, place: str, delay_s: float, options: dict[str, str], number: int
) -> Iterator[Figure]:
    client = redis.Redis(port=server.port)
    client.flushall()
    made = JournaledStore if "journal_url" in options else DelayStore
    store = made(client, Keys(), (0, 3, 6, 9), Options(**options))
    store.delivery.offer("bench", _offer("first", delay_s))
    memory, disk = int(client.info("memory")["used_memory"]), _disk(store)
    for at in range(0, number, PAGE):
        store.delivery.offer("bench", *(_offer(f"{at + n:036}", delay_s, at + n) for n in range(PAGE)))
    yield Figure(f"{place}, memory", (int(client.info("memory")["used_memory"]) - memory) / number, "B/msg")
    if isinstance(store, JournaledStore):
        yield Figure(f"{place}, disk", (_disk(store) - disk) / number, "B/msg")
    publishing, cancelling = [], []
    for n in range(SINGLE):
        begun = perf_counter()
        store.delivery.offer("bench", _offer(f"single {n}", delay_s, n))
        publishing.append(perf_counter() - begun)
    for n in range(SINGLE):
        begun = perf_counter()
        [cancelled] = by_id.cancel(store, [f"single {n}"])
        cancelling.append(perf_counter() - begun)
        if len(cancelled.messages) != 1:
            raise RuntimeError(f"{cancelled} of {place}")
    note = f"median of {SINGLE}, with {number:,} messages of 1 KB waiting"
    yield Figure(f"{place}, publish", median(publishing) * 1000, "ms", note=note)
    yield Figure(f"{place}, cancel", median(cancelling) * 1000, "ms", note=note)
    store.close()


def _offer(identity: str, delay_s: float, number: int = 0) -> Offer:
    return Offer(identity, repr((time() + delay_s) * 1000 + number), 0, message(identity, BODY_BYTES))


def _disk(store: DelayStore) -> int:
    return store.journal.stats().bytes if isinstance(store, JournaledStore) else 0
