"""How a process of the server shows a bulk action that it runs."""

from collections import Counter
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import msgspec

from celery_ext.serve.bulk_runs import BulkRun, RunView, _write
from celery_ext.waiting import BulkAction


def running() -> BulkRun:
    """Returns a run that cancels tasks."""
    chosen: dict[str, Any] = {"queues": None, "from_ms": 0, "to_ms": 1, "task": None, "q": None, "retried": False}
    return BulkRun(RunView(id="i", who="ops", action=BulkAction("cancel"), state="running", **chosen))


def test_what_has_ended_has_all_its_outcomes() -> None:
    """A run that ends while it is looked at is not yet shown as done, since only some of its outcomes are known."""
    run = running()

    class Ends:
        done = 3

        @property
        def outcomes(self) -> Counter[str]:
            run.shown.state = "done"
            return Counter({"cancelled": 3})

    work: Any = Ends()
    run.work = work
    view = run.view
    assert (view.state, view.done, view.outcomes) == ("running", 3, {"cancelled": 3})
    assert run.view.state == "done"


def test_other_processes_see_the_latest_state() -> None:
    """Of two threads that write at once, the one with the older state does not write last: it would stay for good."""
    run, in_redis = running(), list[str]()
    run.written = msgspec.structs.replace(run.view, state="counted")
    begun, go_on = Event(), Event()

    def write(run_id: str, state: bytes) -> None:
        if not begun.is_set():  # the first one is slow
            begun.set()
            go_on.wait(30)
        in_redis.append(msgspec.msgpack.decode(state, type=RunView).state)

    broker: Any = SimpleNamespace(store=SimpleNamespace(part=lambda _: SimpleNamespace(write=write)))
    threads = [Thread(target=_write, args=(broker, run)) for _ in range(2)]
    threads[0].start()
    assert begun.wait(30)
    run.shown.state = "done"
    threads[1].start()
    threads[1].join(0.2)  # it has to wait for the first one
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert in_redis == ["running", "done"]
