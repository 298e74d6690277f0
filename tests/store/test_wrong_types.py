"""Somebody else's key in the place of one of a script's: the error names it, and nothing changes."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from celery_ext.journal.promotion import Promotion
from celery_ext.periodic.store import PeriodicStore, Run
from kombu_delayq.redis import checked
from kombu_delayq.redis.operations import Call
from kombu_delayq.store import DelayStore
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.types import InFlight, PageId, Request, Requeued
from kombu_delayq.text import as_text
from tests.store.test_store import OPERATIONS, USED
from tests.support.lua.scripts import FORMS
from tests.support.store.consuming import ME, fetch, land, lives
from tests.support.store.jobs import WHOLE, begun, jobs, joined, now
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, Ear, in_form, refuses_a_key_of_the_wrong_type, waiting
from tests.support.store.layouts import TESTED
from tests.support.store.promoting import JOURNAL_ID, elected, row

IN_FLIGHT = InFlight("q", 0, ME)
TAGS = [f"{ME}.1", f"{ME}.2"]


def prepare(store: DelayStore) -> None:
    """Fills the database with what all operations work on."""
    store.client.flushall()
    store.delivery.offer("q", waiting("k"), waiting("i", priority=3), waiting("i", body="two"), waiting("unknown"))
    store.delivery.offer("q", *(waiting(f"due {n}", PAST_MS, priority=n) for n in range(10)))
    store.part(PeriodicStore).arm("q", 1, [Run("entry", "digest", int(FUTURE_MS), waiting("run"))])
    store.part(Promotion).promote(JOURNAL_ID, elected(store), [row(1)])
    store.queues.note_dead_letters("dead")
    lives(store)
    store.client.lpush("q", "1", "2", "3")
    fetch(store, 2)
    assert land(store, IN_FLIGHT)


Act = Callable[[], Any]


def of_job(store: DelayStore) -> Act:
    """Returns a write of a run of a job that has begun to write to the queue."""
    job = joined(store, begun(store))
    return lambda: jobs(store).enqueue("q", job, [now("i"), waiting("j")])


def of_begin(store: DelayStore) -> Act:
    """Returns the begin of a later run of a job that has begun to write to the queue."""
    job = joined(store, begun(store))
    return lambda: jobs(store).begin(job._replace(run=job.run + 1), "s")


def of_finish(store: DelayStore) -> Act:
    """Returns the end of a job that has begun to write to the queue."""
    job = joined(store, begun(store))
    return lambda: jobs(store).finish(job, "aborted")


def of_put(store: DelayStore) -> Act:
    """Returns a page that is sent to the queue."""
    return lambda: store.delivery.put("q", PageId("s", 1), [waiting("p"), now("now")])


#: In place of what ``OPERATIONS`` has: calls that find what they work on.
ACTS: dict[str, Callable[[DelayStore], Act]] = {
    "ack": lambda store: lambda: store.fetching.ack(TAGS, "q"),
    "requeue": lambda store: lambda: store.fetching.requeue([Requeued(tag, "q", 0, "b") for tag in TAGS], "next"),
    "fetch": lambda store: lambda: store.fetching.fetch(Request(ME, 3, 8, ["q"], in_flight=[IN_FLIGHT])),
    "heartbeat": lambda store: lambda: store.consumers.heartbeat(ME, ["q"], TAGS),
    "adopt": lambda store: lambda: store.delivery.adopt("q", waiting("j"), TAGS[0]),
    "put": of_put,
    "begin": of_begin,
    "enqueue": of_job,
    "finish": of_finish,
    "count_minute": lambda store: lambda: checked(store.figures.count_minute({"q": {"waited:0": 1}}).values()),
}
#: Keys for which an operation has another answer, in tests of its own: one queue hides no other, what has keys of
#: any type says so, a fetch without limits has no places, and what takes several calls is left to Redis's own error.
ELSEWHERE = {
    **dict.fromkeys(("heads", "watch_heads", "due_counts", "forget_empty", "forget_idle"), ".*"),
    "fetch": r"q|\{q\}.*|.*:landing:.*|.*:places",
    "replay": "dead",
}
#: What an operation has done by then in another slot: a chain is noted before its step is stored, a queue of dead
#: letters before they are, and a job as a whole begins and ends before its parts.
STEPPED = {
    "step": ["{delayq}:chains"],
    "bury": ["{delayq}:dead_letters"],
    "begin": [WHOLE, "{delayq}:stream:s"],
    "finish": [WHOLE],
}


def keys_of(act: Act, operation: str) -> list[str]:
    """Returns the keys of all calls of a script."""
    found: list[str | bytes] = []

    make = StoreClient.command

    def command(client: StoreClient, call: Call[Any], *, by_text: bool = False) -> Any:
        found.extend(call.keys if call.operation.name == operation else [])
        return make(client, call, by_text=by_text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoreClient, "command", command)
        act()
    return list(dict.fromkeys(map(as_text, found)))


@pytest.mark.parametrize(
    ("operation", "layout"),
    [form for form in FORMS if form[0] in USED and form[1] in TESTED and ELSEWHERE.get(form[0]) != ".*"],
    indirect=["layout"],
)
def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore, ear: Ear, operation: str) -> None:
    """Whichever key of an operation is somebody else's, the error names it, and no message, note or lease changes."""
    make = ACTS.get(operation, lambda store: partial(OPERATIONS[operation], store))
    prepare(store)
    keys = keys_of(make(store), operation)
    assert keys
    prepare(store)
    act = make(store)
    ear.heard()
    for key in keys:
        if re.fullmatch(ELSEWHERE.get(operation, "-"), key):
            continue
        kept = store.client.dump(in_form(store, key))
        refuses_a_key_of_the_wrong_type(
            store, key, act, stepped=[] if key.startswith("{delayq}") else STEPPED.get(operation, [])
        )
        assert ear.heard() == [], key
        store.client.delete(in_form(store, key))
        if kept is not None:
            store.client.restore(in_form(store, key), 0, kept)
