"""What apps, commands and workers see of a queue whose messages are half in one layout, half in the other."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import celery_ext
from celery_ext.waiting import by_id
from kombu_delayq.options import LAYOUTS, Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Waiting
from tests.support.commands.shell import lines, run
from tests.support.store.keyspace import FUTURE_MS
from tests.support.workers.backlogs import fill
from tests.support.workers.harness import MakeProj, Proj

#: Of the tasks t0 to t7 of the queue, those with an even number are in the form of the app.
IDS = [f"t{n}" for n in range(8)]
DUE = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture(params=LAYOUTS)
def proj(request: pytest.FixtureRequest, make_proj: MakeProj) -> Proj:
    """An app, and eight tasks that wait, every second of them in the layout that is not the app's."""
    [other] = {*LAYOUTS} - {request.param}
    made, with_other = (make_proj(broker_transport_options={"layout": each}) for each in (request.param, other))
    for n, each in enumerate(IDS):
        [made, with_other][n % 2].send("record", each, eta=DUE + timedelta(seconds=n), task_id=each)
    return made


def forms(proj: Proj, queue: str = "celery") -> dict[str, int]:
    """Counts the delayed messages of a queue in each layout."""
    with proj.connection() as connection:
        store = connection.default_channel.store
        return {form: store.client.zcard(store.keys.stored(queue, form)[0]) for form in LAYOUTS}


def test_the_commands_see_and_change_both(proj: Proj) -> None:
    """status, list, show, cancel, reschedule, run-now, export and purge are about the whole queue."""
    [status] = json.loads(run(proj.server, "status", "--json", "-q", "celery").stdout)["queues"]
    assert (status["delayed"], status["next_due"]) == (8, DUE.isoformat())
    assert [each["id"] for each in lines(proj.server, "list", "celery")] == IDS
    assert [each["id"] for each in lines(proj.server, "list", "--limit", "3")] == IDS[:3]
    assert [each["id"] for each in lines(proj.server, "show", *IDS)] == IDS
    exported = [json.loads(line) for line in run(proj.server, "export", "celery").stdout.splitlines()]
    assert [each["id"] for each in exported[1:-1]] == IDS
    for args in (["cancel", "--yes", *IDS[:2]], ["run-now", *IDS[2:4]], ["reschedule", *IDS[4:6], "--countdown", "9h"]):
        run(proj.server, *args)
    assert {each["id"] for each in lines(proj.server, "list")} == {*IDS[4:]}
    assert forms(proj) == {"hash": 2, "redisson": 2}
    assert lines(proj.server, "purge", "--yes", "celery") == [{"queue": "celery", "removed": 4}]
    assert forms(proj) == {"hash": 0, "redisson": 0}


def test_an_import_goes_to_the_own_form(proj: Proj) -> None:
    """What was exported from both layouts comes back in that of the broker's app, in the same order."""
    text = run(proj.server, "export").stdout
    run(proj.server, "purge", "--yes", "celery")
    own = proj.conf["broker_transport_options"]["layout"]
    run(proj.server, "-o", f"layout={own}", "import", stdin=text)
    assert forms(proj) == {**dict.fromkeys(LAYOUTS, 0), own: 8}
    assert [each.id for each in celery_ext.browse(proj.app, "celery")] == IDS


def test_kombu_counts_both(proj: Proj) -> None:
    """A queue is deleted as empty only when it is in either layout; `celery purge` counts, and removes, both."""
    with proj.connection() as connection:
        channel = connection.default_channel
        client = proj.server.client()
        keep = [key for key in channel.store.keys.stored("celery", "hash") if client.delete(key)]
        assert keep
        channel.queue_delete("celery", if_empty=True)
        assert channel.store.queues.size("celery") == 4
    proj.send("record", task_id="ready")
    assert "5 messages" in proj.celery("purge", "-f")
    assert forms(proj) == {"hash": 0, "redisson": 0}


def move_after_the_first_search(store: DelayStore) -> list[str]:
    """Moves a store's messages to its own layout after it has found some. Returns a list that is empty until then."""
    find, moved = store.lookup.get, list[str]()

    def get(*args: Any) -> dict[str, list[Waiting]]:
        found = find(*args)
        if not moved:
            moved.append("q")
            while store.queues.convert("q").left:
                pass
        return found

    store.lookup.get = get  # type: ignore[method-assign]
    return moved


ACTS: list[tuple[Callable[[DelayStore, list[str]], Iterable[tuple[str, str]]], str]] = [
    (lambda store, ids: by_id.reschedule(store, ids, FUTURE_MS + 9), "rescheduled"),
    (by_id.run_now, "transferred"),
]


@pytest.mark.parametrize(("act", "word"), ACTS, ids=lambda each: each if isinstance(each, str) else "")
@pytest.mark.parametrize("own", LAYOUTS)
def test_what_is_moved_before_it_is_changed_is_changed_all_the_same(
    make_proj: MakeProj, own: str, act: Callable[[DelayStore, list[str]], Iterable[tuple[str, str]]], word: str
) -> None:
    """A conversion between search and change makes nobody say that a task does not wait."""
    [other] = {*LAYOUTS} - {own}
    proj = make_proj(broker_transport_options={"layout": other})
    ids = [f"m{n}" for n in range(10)]
    fill(proj, "q", ((each, DUE) for each in ids))
    with proj.connection() as connection:
        given = connection.default_channel.store
        store = DelayStore(given.client, given.keys, options=Options(layout=own))
        moved = move_after_the_first_search(store)
        assert Counter(dict(act(store, ids)).values()) == {word: 10}
        assert moved
        assert dict(act(store, ["nope"])) == {"nope": "not_delayed"}
