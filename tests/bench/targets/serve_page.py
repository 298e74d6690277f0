"""How long ``delayq serve`` takes for a view of the page with a million waiting messages, and Redis for its calls."""

import http.client
from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import BACKUPS
from tests.bench.targets.load import fill, make_store, within_the_next_hour
from tests.bench.targets.report import Figure
from tests.bench.targets.serve import serving

QUEUES = 20
#: Views of each page.
VIEWS = 20
#: Targets: for the first view, and for the longest call of Redis, in ms.
VIEW_MS, CALL_MS = 300, 10


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Views the overview, a queue and a task, in either form, after the messages are there."""
    count = 100_000 if quick else 1_000_000
    for form in BACKUPS:
        with PrivateRedis() as own:
            client: Any = own.client()
            store = make_store(redis.Redis(port=own.port), form)
            for number in range(QUEUES):
                fill(store, count // QUEUES, within_the_next_hour(), queue=f"bench-{number}")
            one = store.scan.browse("bench-7").messages[0].id
            client.config_set("slowlog-log-slower-than", 0)
            client.config_set("slowlog-max-len", 100_000)
            client.slowlog_reset()
            with serving(own.url) as (url, secret, _):
                paths = {
                    "overview": "/",
                    "overview, next month": "/?span=month",
                    "queue": "/queues/bench-7",
                    "queue, page 2": "",
                    "task": f"/tasks/{one}",
                }
                for name, path in paths.items():
                    path = path or _second_page(url, secret)
                    took_ms = [_view_ms(url, secret, path)[0] for _ in range(VIEWS)]
                    named = f"{name}, {form}, {count:,} in {QUEUES} queues"
                    yield Figure(f"{named}, first view", took_ms[0], "ms", VIEW_MS)
                    yield Figure(f"{named}, median", median(took_ms), "ms")
            calls = client.slowlog_get(100_000)
            slowest = max(calls, key=lambda call: call["duration"])
            note = f"of {len(calls):,} calls; SLOWLOG: wall clock; the longest is a {slowest['command'][:20]}"
            yield Figure(f"longest call of the pages, {form}", slowest["duration"] / 1000, "ms", CALL_MS, note=note)


def _view_ms(url: str, secret: str, path: str) -> tuple[float, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    begun = perf_counter()
    connection.request("GET", path, headers={"Authorization": f"Bearer {secret}", "Accept": "text/html"})
    answer = connection.getresponse()
    html = answer.read().decode()
    took_ms = (perf_counter() - begun) * 1000
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status}")
    return took_ms, html


def _second_page(url: str, secret: str) -> str:
    _, html = _view_ms(url, secret, "/queues/bench-7")
    return "/queues/bench-7?" + html.partition("data-next")[2].partition("?")[2].partition("#")[0].replace("&amp;", "&")
