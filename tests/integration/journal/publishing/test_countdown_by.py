"""The transport option ``countdown_by`` with a journal: a publisher whose clock is an hour off."""

from pathlib import Path
from time import time

import pytest

from celery_ext import Call, send_many
from celery_ext.demo.private_redis import PrivateRedis
from tests.integration.transport.test_countdown_by import COUNTDOWN_S, HOUR_S, make_app, set_clock, task_of, waiting


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
def test_a_far_task_waits_in_the_journal(
    redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, off_s: float
) -> None:
    """What is far by its countdown becomes a row, due by Redis's clock; what is near waits in Redis."""
    journal = {"journal_url": f"sqlite:///{tmp_path}/journal.db", "journal_horizon": 1800.0, "journal_lead": 60.0}
    app = make_app(redis_server, fast=True, **journal)
    set_clock(app, monkeypatch, off_s)
    monkeypatch.setattr("celery_ext.journal.store.tiers.time", lambda: time() + off_s)
    task = task_of(app)
    before = time()
    for _ in range(2):
        task.apply_async((1,), task_id="far", countdown=7200)
    task.apply_async((1,), countdown=COUNTDOWN_S)
    send_many(app, task, [Call(countdown=7200), Call(countdown=COUNTDOWN_S)])
    found = waiting(app)
    assert [each.tier for each in found] == ["redis", "redis", "journal", "journal", "journal"]
    for each in found:
        countdown = 7200 if each.tier == "journal" else COUNTDOWN_S
        assert before <= each.due.timestamp() - countdown + 0.01 <= time() + 0.02
        assert each.headers["eta"] is None
