"""A real Prometheus scrapes a server and transfer workers, and every expression that the docs give answers."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
import yaml
from celery import Celery

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import Journal
from celery_ext.limits import Limit, LimitStore
from celery_ext.periodic.keys import PeriodicKeys
from celery_ext.serve import asgi
from celery_ext.serve.access import tokens
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from tests.support import ROOT
from tests.support.commands.shell import BIN
from tests.support.conditions import until, until_equal
from tests.support.journal.stores import addition
from tests.support.serve.prometheus import Prometheus
from tests.support.serve.running import in_thread
from tests.support.servers.cluster import PrivateCluster
from tests.support.store.consuming import fetch, lives
from tests.support.store.keyspace import FUTURE_MS, waiting
from tests.support.workers.held import KEYS
from tests.support.workers.transfers import offer

pytestmark = pytest.mark.xdist_group("prometheus")

MONITORING = ROOT / "docs/monitoring"
#: Messages that come due while Prometheus looks on.
DUE = 20
#: What the variables of Grafana stand for here.
VARIABLES = {"$job": ".*", "$queue": ".*", "$__rate_interval": "30s"}


def expressions() -> dict[str, str]:
    """Returns the expressions of the dashboard, by panel and number, and of the alerts, by name."""
    panels = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    found = {
        f"{panel['title']} {number}": target["expr"]
        for panel in panels
        for number, target in enumerate(panel.get("targets") or [])
    }
    [group] = yaml.safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    found |= {rule["alert"]: rule["expr"] for rule in group["rules"]}
    for name, value in VARIABLES.items():
        found = {key: expr.replace(name, value) for key, expr in found.items()}
    return found


EXPRESSIONS = expressions()
ALERTS = {name for name in EXPRESSIONS if name.startswith("Delayq")}
#: An alert that is right to fire for minutes: a busy machine may hold up the transfer worker for a second.
MAY_FIRE = "DelayqLatenessHigh"


@pytest.fixture(scope="module")
def broker() -> Iterator[PrivateRedis]:
    """A broker with a periodic entry, one of whose runs is past and one is armed."""
    entry = {
        "digest": "d",
        "task": "report",
        "schedule": "daily",
        "missed": "last",
        "is_on": True,
        "queues": ["orders"],
    }
    with PrivateRedis() as server:
        with server.client() as client:
            client.hset(PeriodicKeys(KEYS).entries, "report", json.dumps({**entry, "queues": ["orders"]}))
            client.set(PeriodicKeys(KEYS).lease, "who arms")
            client.hset(PeriodicKeys(KEYS).notes("orders"), "report", f"d 1000 {int(FUTURE_MS)} run")
            DelayStore(client, KEYS).part(LimitStore).declare({"account": Limit(running=2)}, ["orders"])
        yield server


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A file with a token that is good for metrics alone, and the token."""
    path, secret = tmp_path_factory.mktemp("tokens") / "tokens.json", tokens.new_secret()
    entry = {"name": "prometheus", "sha256": tokens.hash_of(secret), "actions": ["metrics"]}
    entry |= {"queues": ["*"], "tasks": ["*"], "rate": None, "expires": None}
    tokens.write_tokens(path, [tokens.Token.parse(entry)])
    return path, secret


@pytest.fixture(scope="module")
def journal_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A journal with a message, which both exporters know, and which the transfer worker promotes."""
    url = f"sqlite:///{tmp_path_factory.mktemp('journal')}/journal.db"
    Journal(url).add([addition("far", FUTURE_MS)])
    return url


@pytest.fixture(scope="module")
def serve_port(broker: PrivateRedis, token: tuple[Path, str], journal_url: str) -> Iterator[int]:
    """Port of a server that wants a token, and knows a queue of dead letters."""
    app = Celery(broker=broker.url, set_as_current=False, broker_transport_options={"journal_url": journal_url})
    app.conf.broker_transport = "kombu_delayq.transport:Transport"
    made = asgi(app, tokens=token[0], dead_letters=("failed",))
    with in_thread(made) as url:
        port = urlsplit(url).port
        assert port
        yield port


@pytest.fixture(scope="module")
def transfer_port(broker: PrivateRedis, journal_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of a transfer worker that answers for metrics."""
    of = ("--broker", broker.url, "--journal-url", journal_url)
    with transferring(tmp_path_factory.mktemp("transfer") / "log", *of, "transfer") as port:
        yield port


@pytest.fixture(scope="module")
def cluster_port(shared_cluster: PrivateCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of a transfer worker of a Redis Cluster, which has a queue ``mails``."""
    shared_cluster.flush()
    log = tmp_path_factory.mktemp("cluster") / "log"
    with transferring(log, "--broker", shared_cluster.url, "transfer", "--also", "mails") as port:
        yield port


@contextmanager
def transferring(log: Path, *args: str) -> Iterator[int]:
    """Runs a transfer worker that answers for metrics on a free port, which it logs."""
    with log.open("w") as out, subprocess.Popen([BIN / "delayq", *args, "--metrics-port", "0"], stderr=out) as process:
        try:
            found = until(lambda: re.search(r"metrics at http://.*:(\d+)/", log.read_text()), what="it has a port")
            assert found
            yield int(found[1])
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def prometheus(
    broker: PrivateRedis,
    serve_port: int,
    transfer_port: int,
    cluster_port: int,
    token: tuple[Path, str],
    tmp_path_factory: Any,
) -> Iterator[Prometheus]:
    """Prometheus, once it has seen messages come due."""
    targets = {"serve": serve_port, "transfer": transfer_port, "cluster": cluster_port}
    directory = tmp_path_factory.mktemp("prometheus")
    prometheus = Prometheus(directory, MONITORING / "alerts.yaml", targets, {"serve": token[1]})
    try:
        prometheus.ready()
        _happen(broker, prometheus)
        yield prometheus
    finally:
        prometheus.close()


def _happen(broker: PrivateRedis, prometheus: Prometheus) -> None:
    """Lets messages wait, come due, be taken, be cancelled and fail. Who took them lives for longer than the tests."""
    store = DelayStore(redis.Redis(port=broker.port), KEYS, options=Options(consumer_ttl=3600))
    store.delivery.offer("orders", waiting("later", FUTURE_MS))
    store.delivery.offer("orders", waiting("cancelled", FUTURE_MS))
    store.client.lpush("failed", "letter")
    until(lambda: prometheus.values('count(delayq_transferred_messages_total{queue="orders"})') == [2], 90)
    lives(store, queues=("orders",))
    store.figures.count_minute({"orders": {"waited:2": DUE}})
    for number in range(DUE):
        offer(store, f"{number}", 0.1, "orders")
    store.lookup.cancel(["orders"], ["cancelled"])
    until(lambda: store.client.llen("orders") == DUE)
    fetch(store, 3, "orders")
    until(lambda: prometheus.values('delayq_ready_messages{queue="orders"}') == [DUE - 3] * 2, 90)
    until(lambda: prometheus.values("delayq_leader_present") == [1, 1, 1], 90)
    until(lambda: prometheus.values('delayq_cluster_queue_slot{queue="mails"}'), 90)


def _are(prometheus: Prometheus, expr: str, expected: list[float]) -> None:
    """Waits until the series of an expression have values: without a scrape in time, a target has none for a while."""
    until_equal(lambda: prometheus.values(expr), expected, what=expr)


def test_all_targets_are_up(prometheus: Prometheus) -> None:
    """Prometheus scrapes the server and the transfer workers without an error.

    A busy machine may delay a scrape.
    """

    def found() -> dict[str, tuple[str, str]]:
        targets = prometheus.ask("targets")["activeTargets"]
        return {each["labels"]["job"]: (each["health"], each["lastError"]) for each in targets}

    until(lambda: found() == dict.fromkeys(("serve", "transfer", "cluster"), ("up", "")))


@pytest.mark.parametrize("name", [name for name in EXPRESSIONS if name not in ALERTS])
def test_each_panel_of_the_dashboard_has_data(prometheus: Prometheus, name: str) -> None:
    """Each expression of the dashboard answers, with at least one series."""
    until(lambda: prometheus.values(EXPRESSIONS[name]), what="a series")


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_each_alert_can_be_evaluated_and_is_quiet(prometheus: Prometheus, name: str) -> None:
    """Each expression of an alert answers, Prometheus evaluates its rule without an error, and none fires.

    Until the workers have begun, some do.
    """

    def rule() -> dict[str, Any]:
        [group] = prometheus.ask("rules")["groups"]
        [found] = [rule for rule in group["rules"] if rule["name"] == name]
        return found

    if name == MAY_FIRE:
        prometheus.values(EXPRESSIONS[name])
    else:
        _are(prometheus, EXPRESSIONS[name], [])
        until_equal(lambda: rule()["state"], "inactive")
    assert rule()["health"] == "ok", rule()


def test_the_figures_are_those_of_what_happened(prometheus: Prometheus) -> None:
    """Both exporters say the same of the messages that came due, were taken and cancelled."""
    _are(prometheus, 'delayq_transferred_messages_total{queue="orders"}', [DUE, DUE])
    _are(prometheus, 'delayq_delivery_lateness_seconds_count{queue="orders"}', [DUE, DUE])
    _are(prometheus, 'delayq_operations_total{queue="orders", operation="cancel"}', [1, 1])
    _are(prometheus, 'delayq_delayed_messages{queue="orders"}', [1, 1])
    _are(prometheus, 'delayq_unacked_messages{queue="orders"}', [3, 3])
    _are(prometheus, 'delayq_consumers{queue="orders"}', [1, 1])
    _are(prometheus, "delayq_dead_letter_messages", [1])


def test_every_metric_is_on_a_page_and_every_expression_names_one(prometheus: Prometheus) -> None:
    """The page on Prometheus lists exactly the metrics that there are; the expressions use no other."""
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(delayq_\w+)`", page, re.MULTILINE))

    def there() -> set[str]:
        names = prometheus.ask("label/__name__/values")
        return {re.sub("_(bucket|sum|count)$", "", name) for name in names if name.startswith("delayq_")}

    until_equal(there, listed)  # some come with a later scrape
    used = {name for expr in EXPRESSIONS.values() for name in re.findall(r"delayq_\w+", expr)}
    assert {re.sub("_bucket$", "", name) for name in used} <= listed
