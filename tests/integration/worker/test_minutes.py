"""What workers count minute by minute, for the page: tasks that are to be tried again, and those that have failed."""

import pytest

from celery_ext.serve.minutes import MinuteFigures
from tests.support.conditions import until_equal
from tests.support.workers.harness import MakeProj

BURIED = {"dead_letter_queue": "dead", "dead_letter_on": "failure"}


@pytest.mark.journey
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_failures_and_retries_are_counted_for_their_queue(make_proj: MakeProj, pool: str) -> None:
    """Each is counted once, within a heartbeat, whether or not the task has a queue of dead letters."""
    proj = make_proj(
        broker_transport_options={"consumer_ttl": 6.0},
        task_annotations={"proj.late_acked": BURIED},
        task_acks_late=False,
    )
    proj.worker("-Q", "q", pool=pool)
    proj.send("flaky", 2, 1.0, queue="q")  # is tried again twice
    for task in ("flaky", "late_acked", "add"):  # the first lacks an argument, the second has one that is wrong
        proj.send(task, *(["no number"] if task == "late_acked" else []), queue="q")
    with proj.connection() as connection:
        store = connection.default_channel.store

        def counted() -> tuple[int, int, int, int]:
            found = store.part(MinuteFigures).read(["q", "dead"], store.now_ms())
            return sum(found["q"].delivered), sum(found["q"].retried), sum(found["q"].failed), sum(found["dead"].dead)

        until_equal(counted, (2, 2, 2, 1))
        assert sum(store.part(MinuteFigures).read(["q"], store.now_ms())["q"].dead) == 0
