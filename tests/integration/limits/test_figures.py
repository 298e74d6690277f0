"""What waits in sub-queues counts as ready wherever people look, and what may not go now counts apart."""

import json
import re
from collections.abc import Iterator

import pytest
import redis
from celery import Celery
from click.testing import CliRunner
from kombu import Connection, Exchange, Queue
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from celery_ext.cli import delayq
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.limits import LIMIT_HEADER, Limit, LimitStore
from celery_ext.serve import asgi
from kombu_delayq.store import DelayStore, QueueStats
from tests.support.servers.acl import PAGE, denials, url_of, users
from tests.support.store.consuming import ME, fetch, lives
from tests.support.store.cost import round_trips
from tests.support.workers.harness import TRANSPORT
from tests.support.workers.held import KEYS

__all__ = ["users"]


@pytest.fixture
def store(redis_server: PrivateRedis) -> Iterator[DelayStore]:
    """A store in whose queue ``orders`` six messages have come that a limit allows to run two at once."""
    store = DelayStore(redis.Redis(port=redis_server.port), KEYS)
    yield fill(store)
    store.close()


@pytest.fixture
def layout() -> str:
    """The layout of ``users``."""
    return "hash"


def fill(store: DelayStore) -> DelayStore:
    """Lets four messages of one account and two of another wait, of which a consumer takes one each."""
    store.part(LimitStore).declare({"account": Limit(running=1), "stripe": Limit(running=1)}, ["orders"])
    for key in ("account:7",) * 4 + ("account:8",) * 2:
        push(store, key)
    lives(store, queues=("orders",))
    store.queues.know("orders")
    assert len(fetch(store, 8, "orders")) == 2
    return store


def push(store: DelayStore, key: str, queue: str = "orders") -> None:
    """Publishes a message of a key."""
    store.client.lpush(queue, json.dumps({"body": key, "headers": {LIMIT_HEADER: key}, "properties": {}}))


def ask(server: PrivateRedis, path: str) -> str:
    app = Celery(broker=server.url, set_as_current=False)
    app.conf.broker_transport = TRANSPORT
    with TestClient(asgi(app, anonymous=True), base_url="http://127.0.0.1") as client:
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text


def series(text: str) -> dict[tuple[str, ...], float]:
    """Returns the series of queues: name of the metric, and values of its labels."""
    return {
        (sample.name.removeprefix("delayq_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counts_of_the_store(store: DelayStore) -> None:
    """What waits in sub-queues is ready; what a consumer would get now is that without what may not go."""
    push(store, "account:9")
    stats = store.queues.stats("orders")
    assert (stats.ready, stats.limited, store.fetching.size("orders")) == (5, 4, 5)
    assert store.fetching.limited(["orders", "mails"]) == [4, 0]
    assert store.fetching.available(["orders", "mails"]) == [1, 0]
    assert (QueueStats("q", 0, 0, 4, 0, None, limited=4).oldest_ready_s, stats.oldest_ready_s) == (0, None)


def test_metrics_count_by_limit_and_never_by_key(redis_server: PrivateRedis, store: DelayStore) -> None:
    """Waiting, running and limited messages have series of queue and limit; no label has a key."""
    push(store, "unknown:7")
    text = ask(redis_server, "/metrics")
    found = series(text)
    names = ("ready_messages", "limited_messages", "limit_free_keys", "limit_resting_keys")
    assert [found[name, "orders"] for name in names] == [5, 4, 0, 0]
    assert {key: value for key, value in found.items() if key[0].startswith("limit_") and len(key) == 3} == {
        ("limit_waiting_messages", "orders", "account"): 4,
        ("limit_waiting_messages", "orders", "stripe"): 0,
        ("limit_running_tasks", "orders", "account"): 2,
        ("limit_running_tasks", "orders", "stripe"): 0,
    }
    assert "account:" not in text
    assert '"unknown' not in text


def test_many_keys_make_no_scrape_slow(store: DelayStore) -> None:
    """What is counted costs as many commands for many keys as for few, and none that looks at them one by one."""
    part, commands = store.part(LimitStore), []
    for keys in (10, 1000):
        for number in range(keys):
            push(store, f"account:{keys}-{number}")
        fetch(store, 4, "orders", first=keys)
        store.client.config_resetstat()
        assert round_trips(store, lambda: part.use(["orders"])) == 2
        found = store.client.info("commandstats")
        commands.append({name: each["calls"] for name, each in found.items() if "info" not in name})
    assert commands[0] == commands[1]
    assert commands[0].keys() & {"cmdstat_hscan", "cmdstat_zscan", "cmdstat_zrange"} == set()


def test_people_see_what_is_limited(redis_server: PrivateRedis, store: DelayStore) -> None:
    """The command, its JSON, the API, the page and the figure for autoscalers have both numbers."""
    push(store, "account:9")
    told = CliRunner().invoke(delayq, ["--broker", redis_server.url, "status"])
    assert "5, 4 limited" in told.output
    values = json.loads(CliRunner().invoke(delayq, ["--broker", redis_server.url, "status", "--json"]).stdout)
    [row] = values["queues"]
    assert (row["ready"], row["limited"]) == (5, 4)
    row = json.loads(ask(redis_server, "/v1/queues/orders"))
    assert (row["ready"], row["limited"], row["oldest_ready_s"]) == (5, 4, None)
    found = json.loads(ask(redis_server, "/scale?queue=orders"))
    assert (found["value"], found["ready"], found["limited"]) == (1, 5, 4)
    for path in ("/", "/queues/orders"):
        assert "4 limited" in ask(redis_server, path), path


def test_kombu_counts_what_waits_in_sub_queues(redis_server: PrivateRedis, store: DelayStore) -> None:
    """A passive declaration counts it, and a purge removes and counts it, while running tasks keep their places."""
    with Connection(redis_server.url, transport=TRANSPORT) as connection:
        channel = connection.default_channel
        assert channel.queue_declare("orders", passive=True).message_count == 4
        assert channel.queue_purge("orders") == 4
        assert channel.queue_declare("orders").message_count == 0
    assert [(state.key, state.waiting, state.running) for state in store.part(LimitStore).keys("orders")] == [
        ("account:7", 0, 1),
        ("account:8", 0, 1),
    ]


def test_a_purge_of_delayed_messages_leaves_those_in_sub_queues(redis_server: PrivateRedis, store: DelayStore) -> None:
    """``delayq queues purge`` removes delayed messages only; those stay that wait for a consumer in sub-queues."""
    done = CliRunner().invoke(delayq, ["--broker", redis_server.url, "queues", "purge", "--yes", "orders"])
    assert done.exit_code in (0, 1), done.output
    assert store.queues.purge("orders") == 0
    assert store.fetching.size("orders") == 4


def test_a_queue_with_messages_in_sub_queues_only_is_not_forgotten(store: DelayStore) -> None:
    """A queue stays known while a message waits in a sub-queue, and is forgotten after that."""
    assert store.queues.forget_empty(["orders"]) == []
    store.part(LimitStore).drop_parked("orders")
    assert store.queues.forget_empty(["orders"]) == ["orders"]


def test_a_deleted_queue_leaves_no_key(redis_server: PrivateRedis, store: DelayStore) -> None:
    """With the queue go the keys of its limits, once no task of it runs."""
    store.fetching.ack([f"{ME}.{number}" for number in (1, 2)], "orders")
    assert store.part(LimitStore).use(["orders"])["orders"].running == {"account": 0, "stripe": 0}
    with Connection(redis_server.url, transport=TRANSPORT) as connection:
        queue = Queue("orders", Exchange("orders"), channel=connection.default_channel)
        queue.declare()
        queue.delete()
    assert store.client.keys("delayq:{orders}:places*") == []


def test_the_rights_of_the_page_are_enough(users: PrivateRedis) -> None:
    """With the rights that the page adds, a worker's user does all of limits, and user status counts them."""
    more = rights_of_limits()
    users.client().execute_command("ACL", "SETUSER", "shop", "~orders*", *more[0])
    users.client().execute_command("ACL", "SETUSER", "status", "~orders*", *more[1])
    store = DelayStore(redis.Redis(port=users.port, username="shop", password="password"), KEYS)
    part = fill(store).part(LimitStore)
    part.override("account:7", Limit(running=3), ["orders"])
    assert len(fetch(store, 8, "orders", first=3)) == 2
    assert part.back_off("orders", "account:7", 60, f"{ME}.1", "body", 0, is_early=False)
    part.nudge(["orders"])
    store.consumers.leave([ME], "orders")
    assert {state.running for state in part.keys("orders")} == {0}
    assert part.unpark("orders") > 0
    store.close()
    shown = CliRunner().invoke(delayq, ["--broker", url_of(users, "status"), "status", "orders"])
    assert shown.exit_code == 0, shown.output
    assert denials(users) == []
    reader = DelayStore(redis.Redis(port=users.port, username="status", password="password"), KEYS)
    assert reader.part(LimitStore).use(["orders"])["orders"].running == {"account": 0, "stripe": 0}
    reader.close()


def rights_of_limits() -> list[list[str]]:
    """Returns the rights that the page on ACLs adds for limits: for users that consume, and for status."""
    text = PAGE.read_text(encoding="utf-8").partition("## Limits by key\n")[2].partition("\n## ")[0]
    block = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    status = re.search(r"of limits need `(.*?)`", text)
    assert block
    assert status
    return [block[1].split(), status[1].split()]


def test_a_worker_without_the_rights_still_consumes(users: PrivateRedis) -> None:
    """Where others have declared limits, a user with the rights of the page but for limits loses and keeps nothing."""
    admin = fill(DelayStore(redis.Redis(port=users.port), KEYS))
    users.client().execute_command("ACL", "SETUSER", "shop", "~orders*")
    store = DelayStore(redis.Redis(port=users.port, username="shop", password="password"), KEYS)
    push(store, "account:9")
    assert len(fetch(store, 8, "orders", first=3)) == 1
    assert store.fetching.ack([f"{ME}.{number}" for number in (1, 2, 3)], "orders") == []
    assert len(fetch(store, 8, "orders", first=4)) == 2
    store.consumers.leave([ME], "orders")
    assert {state.running for state in admin.part(LimitStore).keys("orders")} == {0}
    assert admin.fetching.size("orders") == 2
    for each in (store, admin):
        each.close()
