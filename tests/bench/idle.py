"""What an idle transfer worker asks of Redis."""

from collections import Counter
from collections.abc import Iterator
from time import monotonic, time
from typing import Any

import redis

from celery_ext.private_redis import PrivateRedis
from kombu_delayq.options import BACKUPS
from kombu_delayq.results import Offer
from tests.bench.burst import transfer_process
from tests.bench.load import HOUR_MS, make_store, message
from tests.bench.report import Figure

#: Left out at the beginning, in s.
START_S = 3


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Counts, with MONITOR, the commands that one transfer worker sends while nothing is due."""
    seconds = 6 if quick else 15
    for form in BACKUPS:
        for queues in (1, 10):
            sent = _sent(server, form, queues, seconds)
            note = f"MONITOR for {seconds} s, without what runs inside scripts: {dict(sent)}"
            name = f"idle transfer worker, {form}, {queues} queue{'s' * (queues > 1)}, next due in an hour"
            yield Figure(name, sent.total() / seconds, "commands/s", 2, note=note)


def _sent(server: PrivateRedis, form: str, queues: int, seconds: float) -> Counter[str]:
    client: Any = redis.Redis(port=server.port)
    client.flushall()
    store = make_store(client, form)
    for number in range(queues):
        due_ms = time() * 1000 + HOUR_MS
        store.offer(f"queue{number}", Offer(f"id{number}", repr(due_ms), 0, message(f"id{number}")))
    with transfer_process(server.url, form), client.monitor() as monitor:
        since = monotonic() + START_S
        sent: Counter[str] = Counter()
        while (now := monotonic()) < since + seconds:
            # A worker polls within two seconds, so this returns.
            command = monitor.next_command()
            if now >= since and command["client_type"] != "lua":
                sent[command["command"].split(" ", 1)[0]] += 1
    return sent
