"""The collector: each scrape says what is in Redis, and never fails."""

import json
import logging
import socket
from math import inf
from time import monotonic
from typing import Any

import pytest
import redis
from celery import Celery
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve import DelayqCollector, asgi
from kombu_delayq import __version__
from kombu_delayq.store import DelayStore
from kombu_delayq.store.consumers import http_consumer
from tests.support.conditions import DEADLINE_S, until
from tests.support.serve.metrics import Series, collector_of, scraped
from tests.support.servers.acl import denials, url_of
from tests.support.store.consuming import ME, OTHER, end_lease, fetch, lives
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, waiting
from tests.support.workers.held import KEYS
from tests.support.workers.transfers import offer

BOUNDS = ("5", "60", "300", "900", "3600", "14400", "28800", "86400")


def of(name: str, found: dict[Series, float]) -> dict[Any, float]:
    """Returns the values of one metric by their labels; a single label stands for itself."""
    return {key[1] if len(key) == 2 else key[1:]: value for key, value in found.items() if key[0] == name}


def said_of_metrics(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns what was logged of metrics."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("celery_ext.serve")]


def test_gauges_say_what_each_queue_holds(store: DelayStore) -> None:
    """Delayed, ready of all priorities, overdue, and due within each span at the scrape: of every known queue."""
    dues_ms = [store.now_ms() + delay_s * 1000 for delay_s in (-100, 3, 50, 70, 600, 7200, 40_000, 900_000)]
    for due_ms in dues_ms:
        store.delivery.offer("orders", waiting(f"at {due_ms}", due_ms))
    store.delivery.offer("mails", waiting("i", FUTURE_MS))
    for key in ("orders", "orders\x06\x163", "orders\x06\x169"):
        store.client.lpush(key, "message")
    begun_ms, found, ended_ms = store.now_ms(), scraped(collector_of(store)), store.now_ms()

    def is_due(count: float, within_s: str = "0") -> bool:
        least, most = (
            sum(due_ms <= at_ms + int(within_s) * 1000 for due_ms in dues_ms) for at_ms in (begun_ms, ended_ms)
        )
        return least <= count <= most

    assert of("delayed_messages", found) == {"orders": 8, "mails": 1}
    assert of("ready_messages", found) == {"orders": 3, "mails": 0}
    assert is_due(of("overdue_messages", found)["orders"])
    assert of("overdue_messages", found)["mails"] == 0
    overdue_s = of("overdue_seconds", found)
    assert (begun_ms - dues_ms[0]) / 1000 - 0.01 <= overdue_s["orders"] <= (ended_ms - dues_ms[0]) / 1000 + 0.01
    assert overdue_s["mails"] == 0
    next_due = of("next_due_timestamp_seconds", found)
    assert next_due["orders"] == pytest.approx(dues_ms[0] / 1000, abs=0.01)
    assert next_due["mails"] == FUTURE_MS / 1000
    within = of("due_within_messages", found)
    assert all(is_due(within["orders", bound], bound) for bound in BOUNDS)
    assert [within["mails", bound] for bound in BOUNDS] == [0] * 8
    assert (found["redis_up",], found["leader_present",], found["build_info", __version__]) == (1, 0, 1)


def test_consumers_and_what_they_hold_count_by_queue(store: DelayStore) -> None:
    """A consumer counts for each of its queues while its lease lasts; what it has counts for the message's queue.

    One over HTTP counts once, however many leases it has.
    """
    for queue in ("orders", "mails", "none"):
        offer(store, queue, 900, queue)
    lives(store, ME, queues=("orders", "mails"))
    lives(store, OTHER, queues=("orders",))
    lives(store, *(http_consumer("ada", f"{number}-abc") for number in range(3)), queues=("mails",))
    store.client.lpush("orders", *['{"properties": {"delivery_info": {}}}'] * 3)
    assert len(fetch(store, 2, "orders")) == 2
    found = scraped(collector_of(store))
    assert of("consumers", found) == {"orders": 2, "mails": 2, "none": 0}
    assert of("unacked_messages", found) == {"orders": 2, "mails": 0, "none": 0}
    assert of("ready_messages", found)["orders"] == 1
    end_lease(store, OTHER)
    assert of("consumers", scraped(collector_of(store)))["orders"] == 1


def test_a_queue_of_dead_letters_is_no_other_queue(store: DelayStore) -> None:
    """Its length is counted apart, also if the app declares it."""
    store.client.lpush("failed", "letter")
    store.client.lpush("failed\x06\x163", "letter")
    found = scraped(collector_of(store, queues=["orders", "failed"], dead_letters=["failed", "none yet"]))
    assert of("dead_letter_messages", found) == {"failed": 2, "none yet": 0}
    assert of("ready_messages", found) == {"orders": 0}


def test_the_app_says_which_queues_there_are(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """Queues that the app declares are shown before they are used; its password and prefix are read from it."""
    app = Celery(broker=redis_server.url, set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": "shop."}
    app.conf.task_queues = {"orders": {}, "mails": {}}
    client.lpush("shop.orders", "message")
    found = scraped(DelayqCollector(app))
    assert of("ready_messages", found) == {"orders": 1, "mails": 0}
    options = {"global_keyprefix": "shop."}
    by_url = DelayqCollector(redis_server.url, queues=["orders"], transport_options=options)
    assert of("ready_messages", scraped(by_url)) == {"orders": 1}


def test_redis_may_go_and_come_back(own_server: PrivateRedis, caplog: pytest.LogCaptureFixture) -> None:
    """Without Redis there is `delayq_redis_up 0` and nothing else, logged once; then all is as before."""
    caplog.set_level(logging.INFO, "celery_ext.serve")
    collector = DelayqCollector(own_server.url, queues=["q"])

    def figures() -> dict[tuple[str, ...], float]:  # but for memory, which a restart changes
        return {name: value for name, value in scraped(collector).items() if "memory" not in name[0]}

    before = figures()
    own_server.stop()
    assert [scraped(collector) for _ in range(3)] == [{("redis_up",): 0}] * 3
    own_server.start()
    assert until(lambda: figures() == before)
    said = said_of_metrics(caplog)
    assert [text.partition(":")[0] for text in said] == [
        "metrics cannot be read from Redis",
        "metrics can be read from Redis again",
    ]


def test_the_next_broker_of_a_failover_list_is_asked(own_server: PrivateRedis, redis_server: PrivateRedis) -> None:
    """When the first broker of a list goes away, a later scrape asks the next one."""
    collector = DelayqCollector(f"{own_server.url};{redis_server.url}", queues=["q"])
    own_server.client().lpush("q", "message")
    assert of("ready_messages", scraped(collector)) == {"q": 1}
    own_server.stop()
    assert until(lambda: of("ready_messages", scraped(collector)) == {"q": 0})


def test_a_redis_that_says_nothing_ends_a_scrape_in_time() -> None:
    """A host that takes connections and never answers costs `socket_timeout`, not the minutes that kombu would wait."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        app = Celery(broker=f"redis://127.0.0.1:{silent.getsockname()[1]}/0", set_as_current=False)
        app.conf.broker_transport_options = {"socket_timeout": 0.3}
        begun = monotonic()
        assert scraped(DelayqCollector(app)) == {("redis_up",): 0}
        assert TestClient(asgi(app, anonymous=True)).get("/healthz").status_code == 503
    assert monotonic() - begun < DEADLINE_S


def test_to_register_a_collector_asks_redis_nothing(own_server: PrivateRedis) -> None:
    """It has names before the first scrape, so that a registry refuses a second one; no connection is made for it."""
    client = own_server.client()
    count = int(client.info("stats")["total_connections_received"])
    registry = CollectorRegistry()
    registry.register(DelayqCollector(own_server.url))
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(DelayqCollector(own_server.url))
    assert int(client.info("stats")["total_connections_received"]) == count


def test_what_redis_refuses_is_left_out(own_server: PrivateRedis, caplog: pytest.LogCaptureFixture) -> None:
    """A key in the way hides its queue, and a missing right the figures that need it; the log says so once."""
    admin = own_server.client()
    for queue in ("orders", "broken"):
        offer(DelayStore(redis.Redis(port=own_server.port), KEYS), "1", 900, queue)
    lives(DelayStore(redis.Redis(port=own_server.port), KEYS), queues=("orders",))
    admin.delete("delayq:{broken}:due")
    admin.set("delayq:{broken}:due", "somebody else's")
    keys = ("~delayq:*", "~{delayq}:*", "~orders*", "~{orders}*", "~broken*", "~{broken}*")
    admin.execute_command("ACL", "SETUSER", "poor", "on", ">s3cret", *keys, "+@all")
    collector = DelayqCollector(f"redis://poor:s3cret@127.0.0.1:{own_server.port}/0")
    found = [scraped(collector) for _ in range(2)][1]
    assert found["redis_up",] == 1
    assert of("delayed_messages", found) == {"orders": 1}
    assert of("unacked_messages", found) == {}
    assert of("consumers", found) == {"orders": 1}
    said = said_of_metrics(caplog)
    assert len(said) == 2
    assert "queue 'broken'" in said[0]
    assert said[1].startswith("metrics leave out messages in hand: ")
    assert "s3cret" not in str(found) + caplog.text


def test_the_rights_of_the_page_are_enough(users: PrivateRedis, caplog: pytest.LogCaptureFixture) -> None:
    """The users whom the page on ACLs gives `status`, and `transfer` with three rights more, read every metric."""
    users.client().execute_command("ACL", "SETUSER", "transfer", "+lindex", "+llen", "+zcard")
    store = DelayStore(redis.Redis(port=users.port), KEYS)
    offer(store, "1", 900, "celery")
    lives(store, queues=("celery",))
    store.client.lpush("celery", '{"properties": {"delivery_info": {}}}')
    fetch(store, 1, "celery")
    store.client.lpush("celery", json.dumps({"properties": {"timestamp": store.now_ms() / 1000 - 90}}))
    for user in ("status", "transfer"):
        found = scraped(DelayqCollector(url_of(users, user)))
        gauges = ("delayed_messages", "unacked_messages", "consumers", "transferred_messages_total")
        assert [of(name, found) for name in gauges] == [{"celery": count} for count in (1, 1, 1, 0)]
        assert of("oldest_ready_seconds", found)["celery"] == pytest.approx(90, abs=30)
    assert (caplog.text, denials(users)) == ("", [])
    store.close()


@pytest.mark.parametrize("layout", ["hash"], indirect=True)
def test_any_name_of_a_queue_can_be_a_label(store: DelayStore) -> None:
    """Quotes, line breaks, braces and bytes that are no UTF-8 end no scrape; promtool understands the whole text."""
    names = ['"}', "a\nb", "back\\slash", "{tag}", "ü 🐇", "\udcff"]
    for name in names:
        store.delivery.offer(name, waiting("i", PAST_MS))
    assert set(of("delayed_messages", scraped(collector_of(store)))) == {*names[:-1], "\\udcff"}


def test_no_series_tells_of_a_task(store: DelayStore) -> None:
    """The labels are queue, within, operation, outcome, le and version: no id and no name of a task."""
    offer(store, "an id", 900)
    store.delivery.offer("q", waiting("another id", PAST_MS))
    store.delivery.transfer("q")
    labels = {
        label
        for family in collector_of(store, dead_letters=["failed"]).collect()
        for sample in family.samples
        for label in sample.labels
    }
    assert labels == {"queue", "within", "operation", "outcome", "le", "version"}
    assert "an id" not in str(scraped(collector_of(store)))


def test_the_histogram_has_each_message_in_its_bucket(store: DelayStore) -> None:
    """Messages of known lateness, transferred one by one or together, are in the bucket above it."""
    one_by_one = ([late_s] for late_s in (1.1, 2.7, 6.0, 12.0, 70.0, 1000.0, 20_000.0))
    least, most = list[float](), list[float]()
    for latenesses_s in (*one_by_one, [32.0, 33.0, 34.0, 35.0]):
        now_ms = store.now_ms()
        store.delivery.offer("q", *(waiting(f"{late_s}", now_ms - late_s * 1000) for late_s in latenesses_s))
        while store.delivery.transfer("q").moved:
            pass
        least += latenesses_s
        most += [late_s + (store.now_ms() - now_ms) / 1000 for late_s in latenesses_s]
    found = scraped(collector_of(store))
    buckets = {key[1]: value for key, value in found.items() if key[0] == "delivery_lateness_seconds_bucket"}
    bounds = (".005", ".01", ".025", ".05", ".1", ".25", ".5", "1", "2.5", "5", "10", "30", "60", "300", "900", "3600")
    assert sorted(map(float, buckets)) == [*map(float, bounds), inf]
    for bound, count in buckets.items():
        assert (
            sum(late_s <= float(bound) for late_s in most) <= count <= sum(late_s <= float(bound) for late_s in least)
        )
    assert found["transferred_messages_total", "q"] == found["delivery_lateness_seconds_count", "q"] == 11
    sum_s = found["delivery_lateness_seconds_sum", "q"]
    assert sum(least) - 0.1 <= sum_s <= sum(most) + 0.1
