"""A server that refuses commands which delayed delivery can do without, by ``rename-command`` and not by ACL."""

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.workers.harness import MakeProj


def _without(*commands: str) -> PrivateRedis:
    return PrivateRedis(*(word for command in commands for word in ("--rename-command", command, "")))


@pytest.mark.both_layouts
@pytest.mark.parametrize("command", ["INFO", "SUBSCRIBE", "PUBLISH", "CLIENT"])
def test_delayed_tasks_run_without_a_command_that_is_not_needed(make_proj: MakeProj, command: str) -> None:
    """Where a command is renamed, delayed tasks are published and delivered, at the latest by the next poll."""
    with _without(command) as server:
        proj = make_proj(server, worker_enable_remote_control=False, worker_send_task_events=False)
        worker = proj.worker("--without-heartbeat", pool="solo")
        proj.send("record", "waits", countdown=1)
        proj.await_runs(1, value="waits")
        assert worker.alive()
        assert "Redis cannot be used" not in worker.log
