"""What ``docs/capacity.py`` says beside what is seen: the same workers and messages on one node and on three."""

import json
import random
from collections.abc import Callable, Iterator
from time import monotonic, sleep
from typing import Any

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.capacity.constants import model
from tests.bench.targets.cluster.places import Place, one_node, three_nodes, working
from tests.bench.targets.load import fill, within_the_next_hour
from tests.bench.targets.report import Figure
from tests.support import ROOT
from tests.support.conditions import until

WORKERS, QUEUES, WAITING = 3, 6, 30_000
#: Messages/s that are published, all of them delayed by this many seconds.
RATES, DELAY_S = (50, 200), (0.5, 1.5)
SETTLE_S, WATCH_S = 4.0, 12.0


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Yields each figure as measured, with what was predicted in its note, and the ratio of both."""
    for start in (one_node, three_nodes):
        with start() as place:
            yield from _compared(place, WATCH_S / 2 if quick else WATCH_S)


def _compared(place: Place, watch_s: float) -> Iterator[Figure]:
    costs = json.loads((ROOT / "docs" / "capacity.json").read_text(encoding="utf-8"))
    capacity, nodes = model(), len(place.clients)
    queues = [f"bench{number}" for number in range(QUEUES)]

    def predicted(**load: Any) -> Any:
        given = {"queues": QUEUES, "queues_per_worker": QUEUES, "workers": WORKERS, "prefetch": 0, **load}
        return capacity.Capacity(costs, capacity.Load(**given), capacity.Node(), nodes)

    before = place.sum_of("clients", "connected_clients")
    with working(place, queues, WORKERS) as workers:
        sleep(SETTLE_S)
        found = (place.sum_of("clients", "connected_clients") - before) / nodes
        yield from _ratio(place, "connections of a node", found, predicted().connections(), "")
        app = place.app()
        task = app.tasks["bench.begin"]
        sent = 0
        for rate in (0, *RATES):
            cpu_s, begun = place.main_s(), monotonic()
            made = _publish(
                lambda: task.apply_async((0.0,), queue=random.choice(queues), countdown=random.uniform(*DELAY_S)),
                rate,
                watch_s,
            )
            sent += made
            used = (place.main_s() - cpu_s) / (monotonic() - begun)
            said = predicted(rate=made / watch_s).core(nodes) * nodes
            yield from _ratio(place, f"Redis CPU, {rate} messages/s", used * 100, said * 100, "% of a core")
        until(lambda: workers.journal.count() >= sent, 30, "tasks have run")
        bare = place.sum_of("memory", "used_memory")
        with app.connection() as connection:
            channel: Any = connection.default_channel
            for queue in queues:
                fill(channel.store, WAITING // QUEUES, within_the_next_hour(), queue=queue)
        app.close()
        found = place.sum_of("memory", "used_memory") - bare
        yield from _ratio(
            place,
            f"memory, {WAITING:,} waiting",
            found / 1e6,
            predicted(waiting=WAITING).memory()["waiting"] / 1e6,
            "MB",
        )


def _publish(send: Callable[[], object], rate: int, watch_s: float) -> int:
    """Publishes so many messages a second, evenly, or fewer if the machine is too busy. Returns how many."""
    begun, made = monotonic(), 0
    while (passed := monotonic() - begun) < watch_s:
        if rate and made < passed * rate:
            send()
            made += 1
        else:
            sleep(0.002 if rate else watch_s - passed)
    return made


def _ratio(place: Place, what: str, found: float, said: float, unit: str) -> Iterator[Figure]:
    yield Figure(f"{what}, {place.name}, measured", found, unit, note=f"predicted {said:.4g}")
    yield Figure(f"{what}, {place.name}, predicted / measured", said / found if found else 0.0, "")
