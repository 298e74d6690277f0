"""Which queues there are: one list for all who show queues."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery
from kombu import Connection, Exchange, Queue

from celery_ext.connection import TRANSPORT
from celery_ext.waiting import all_queues
from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.store.consuming import lives
from tests.support.store.fixtures import layout, make_store, plain_server, server, store
from tests.support.store.keyspace import waiting
from tests.support.store.layouts import hash_only

__all__ = ["layout", "make_store", "plain_server", "server", "store"]

pytestmark = hash_only

UUID = "0f0b7a58-54a5-4f2c-9f0f-9ad0a1f7f4d3"


def declare(store: DelayStore, queue: str, exchange: str, kind: str = "direct") -> None:
    """Lets our transport bind a queue to an exchange."""
    port = store.client.connection_pool.connection_kwargs["port"]
    with Connection(f"redis://127.0.0.1:{port}/0", transport=TRANSPORT) as connection:
        Queue(queue, Exchange(exchange, kind), "key")(connection.default_channel).declare()


KNOWN: dict[str, Callable[[DelayStore], object]] = {
    "delayed": lambda store: store.delivery.offer("q", waiting("i")),
    "consumed": lambda store: lives(store, queues=("p", "q")),
    "paused": lambda store: store.fetching.pause("q"),
    "bound": lambda store: declare(store, "q", "q"),
    "bound to an exchange of another name": lambda store: declare(store, "q", "shop", "topic"),
}


@pytest.mark.parametrize("make", KNOWN.values(), ids=list(KNOWN))
def test_a_queue_is_known_however_it_came(store: DelayStore, make: Callable[[DelayStore], object]) -> None:
    """Whether it is delayed, consumed, paused or bound; it needs no app."""
    assert all_queues(store, None) == []
    make(store)
    until(lambda: "q" in all_queues(store, None), what="the queue is known")


ROUTES: dict[str, Any] = {
    "a name": {"mails.send": "q"},
    "a dict": {"mails.send": {"queue": "q"}},
    "a queue": {"mails.send": {"queue": Queue("q")}},
    "a pattern": {"mails.*": {"queue": "q"}},
    "pairs": ([("mails.*", {"queue": "q"}), ("web.*", {"routing_key": "r"})],),
    "beside a function": (lambda name, *given, **more: None, {"mails.send": "q"}),
}


@pytest.mark.parametrize("routes", ROUTES.values(), ids=list(ROUTES))
def test_the_queues_of_an_app_are_those_it_sends_to(store: DelayStore, routes: Any) -> None:
    """Declared ones and those of its routes; also before anything was sent."""
    app = Celery("shop", set_as_current=False)
    app.conf.update(task_routes=routes, task_queues=[Queue("declared")])

    assert all_queues(store, app) == ["declared", "q"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{UUID}.reply.celery.pidbox", "direct"),
        ("celery@host.celery.pidbox", "fanout"),
        (f"celeryev.{UUID}", "topic"),
        (f"bcast.{UUID}", "fanout"),
        (UUID, "direct"),
        (f"events.{UUID}", "topic"),
    ],
)
def test_queues_of_single_processes_are_none(store: DelayStore, name: str, kind: str) -> None:
    """What kombu and Celery bind for replies, events and broadcasts is left out: there is no end of such names."""
    app = Celery("shop", set_as_current=False)
    app.conf.update(task_queues=[Queue("q")], event_queue_prefix="events")
    declare(store, name, "exchange", kind)
    declare(store, f"tenant-{UUID}", "tenants")
    lives(store, queues=(name,))
    assert all_queues(store, app) == ["q", f"tenant-{UUID}"]


def test_dead_letters_are_no_queue_of_tasks(store: DelayStore) -> None:
    """Queues of dead letters are left out, also those that the app declares; a paused one is shown."""
    app = Celery("shop", set_as_current=False)
    app.conf.task_queues = [Queue("q"), Queue("dead"), Queue("named")]
    store.queues.note_dead_letters("dead")
    assert all_queues(store, app, ["named"]) == ["q"]
    store.fetching.pause("dead")
    assert all_queues(store, app, ["named"]) == ["dead", "q"]


def test_a_large_database_is_looked_through_from_call_to_call(store: DelayStore) -> None:
    """A call looks for a short time and the next one goes on, so a queue among many keys is found, and forgotten."""
    with store.client.pipeline(transaction=False) as pipe:
        for number in range(20_000):
            pipe.set(f"celery-task-meta-{number}", "1")
        pipe.execute()
    declare(store, "q", "q")
    looks = 0

    def look() -> set[str]:
        nonlocal looks
        looks += 1
        return store.queues.bound(0.0)

    until(lambda: "q" in look(), what="a look finds the queue")
    store.client.delete("_kombu.binding.q")
    before = looks
    until(lambda: "q" not in look(), what="a later whole look does not")
    assert looks - before > 10
