"""``aselect``: what ``select`` does, without holding up the event loop."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import celery_ext
from celery_ext import Call, aclose, aselect, asend_many
from tests.support.workers.harness import Proj

pytestmark = pytest.mark.both_forms

RECORD = "proj.record"
HOUR_S = 3600.0


def test_selected_tasks_are_counted_read_and_changed(proj: Proj) -> None:
    """Counts, pages of tasks, and changes are those of ``select``; ``progress`` is called in the loop."""
    told: list[tuple[int, int]] = []

    async def on_progress(done: int, of: int) -> None:
        asyncio.get_running_loop()
        told.append((done, of))

    async def work() -> None:
        await asend_many(proj.app, RECORD, (Call((n % 2,), countdown=HOUR_S + n) for n in range(300)))
        odd = aselect(proj.app, task="proj.*", args={"0": 1})
        assert "proj.*" in repr(odd)
        assert await odd.count() == 150
        assert [task.args async for task in odd] == [[1]] * 150
        assert await odd.reschedule(countdown=9 * HOUR_S, progress=on_progress) == {"rescheduled": 150}
        late = aselect(proj.app, due_from=datetime.now(UTC) + timedelta(hours=8))
        assert await late.cancel() == {"cancelled": 150}
        assert await aselect(proj.app, queues="celery").run_now() == {"transferred": 150}
        with pytest.raises(ValueError, match="give either eta or countdown"):
            await late.reschedule()
        await aclose(proj.app)

    asyncio.run(work())
    assert told[-1] == (150, 150)
    assert proj.server.client().llen("celery") == 150


def test_a_cancelled_change_stops(proj: Proj) -> None:
    """After the cancel of its caller, it makes no further call of Redis; what is done stays done."""

    async def work() -> None:
        await asend_many(proj.app, RECORD, (Call((n,), countdown=HOUR_S) for n in range(3000)))
        begun = asyncio.Event()

        async def stuck(done: int, of: int) -> None:
            if done:
                begun.set()
                await asyncio.Event().wait()

        changing = asyncio.create_task(aselect(proj.app).cancel(progress=stuck))
        await asyncio.wait_for(begun.wait(), 60)
        changing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await changing
        await aclose(proj.app)

    asyncio.run(work())
    assert 0 < celery_ext.count(proj.app) < 3000
