"""Cancelling and moving tasks while Redis's answer is lost, with a client that is told to repeat its commands."""

from collections.abc import Sequence
from typing import Any

import pytest
import redis
from celery.exceptions import TaskRevokedError

from celery_ext import cancel, get, reschedule, run_now
from kombu_delayq.errors import AnswerLost
from kombu_delayq.redis import scripts
from kombu_delayq.store.lookup import Lookup
from kombu_delayq.store.types import Waiting
from tests.support.servers.proxies import LosesReply
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.both_layouts


#: The client repeats once what has not been answered.
REPEATING = {"retry_on_timeout": True, "socket_timeout": 2.0}


def loses(proj: Proj, operation: str) -> LosesReply:
    return LosesReply(proj.server.port, scripts.load(operation, proj.layout).sha.encode(), silent=True)


def through(make_proj: MakeProj, proxy: LosesReply) -> Proj:
    """Makes an app whose client repeats a command that it does not hear of, as `retry_on_timeout` says."""
    return make_proj(broker_url=proxy.url, broker_transport_options=REPEATING)


def test_a_cancel_that_was_not_answered_is_an_error_and_no_wrong_answer(make_proj: MakeProj) -> None:
    """The caller is told which tasks may have been cancelled, and not that they did not wait; asking again is safe."""
    with loses(make_proj(), "cancel") as proxy:
        proj = through(make_proj, proxy)
        ids = [proj.send("record", countdown=600).id for _ in range(3)]
        assert cancel(proj.app, "unknown") == "not_delayed"
        proxy.arm()
        with pytest.raises(AnswerLost, match=rf"2 tasks may have been cancelled, or still wait: '{ids[0]}'") as lost:
            cancel(proj.app, ids[:2])
        assert lost.value.ids == ids[:2]
        assert proxy.lost == 1
        assert proj.delayed() == 1
        assert cancel(proj.app, ids) == {ids[0]: "not_delayed", ids[1]: "not_delayed", ids[2]: "cancelled"}


def test_what_was_removed_before_the_connection_was_lost_is_told(
    make_proj: MakeProj, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of tasks that are removed in several calls, those of which Redis has told become REVOKED, and only they."""
    proj = make_proj()
    told, lost = proj.send("record", countdown=600), proj.send("record", countdown=600)
    whole = Lookup.cancel

    def cut(
        self: Lookup, queues: Sequence[str], ids: Sequence[str], found: dict[str, list[Waiting]], **job: str
    ) -> Any:
        whole(self, queues, ids[:1], found, **job)
        whole(self, queues, ids[1:], **job)
        raise redis.ConnectionError("lost after the first call")

    with monkeypatch.context() as patch:
        patch.setattr(Lookup, "cancel", cut)
        with pytest.raises(AnswerLost):
            cancel(proj.app, [told.id, lost.id])
    with pytest.raises(TaskRevokedError):
        told.get(timeout=30)
    assert lost.state == "PENDING"


def test_a_task_that_is_run_now_without_an_answer_is_sent_once(make_proj: MakeProj) -> None:
    """The caller is told that the task may have been sent, and not that it did not wait."""
    with loses(make_proj(), "run_now") as proxy:
        proj = through(make_proj, proxy)
        sent, other = (proj.send("record", countdown=600) for _ in range(2))
        assert run_now(proj.app, other.id) == "transferred"
        proxy.arm()
        with pytest.raises(AnswerLost, match=f"1 task may have been sent to their queues, or still wait: '{sent.id}'"):
            run_now(proj.app, sent.id)
        assert (proj.delayed(), proj.server.client().llen("celery")) == (0, 2)
        assert run_now(proj.app, sent.id) == "not_delayed"


def test_a_reschedule_that_was_not_answered_is_repeated(make_proj: MakeProj) -> None:
    """The second time it changes nothing more, so that its answer is true."""
    with loses(make_proj(), "reschedule") as proxy:
        proj = through(make_proj, proxy)
        sent, other = (proj.send("record", countdown=600) for _ in range(2))
        assert reschedule(proj.app, other.id, countdown=60) == "rescheduled"
        proxy.arm()
        assert reschedule(proj.app, sent.id, countdown=3600) == "rescheduled"
        assert proxy.lost == 1
        task = get(proj.app, sent.id)
        assert task is not None
        assert task.due.timestamp() * 1000 > 600_000 + proj.server.client().time()[0] * 1000
        assert proj.delayed() == 2
