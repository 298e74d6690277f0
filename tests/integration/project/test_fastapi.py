"""The example with FastAPI under uvicorn, as its README says."""

import shutil
import time
from pathlib import Path

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from tests.integration.project.example import Example
from tests.support import ROOT
from tests.support.conditions import until
from tests.support.serve.running import ask
from tests.support.servers.cluster_node import free_port


def test_endpoints_send_find_and_change_reminders(
    tmp_path: Path, redis_server: PrivateRedis, client: redis.Redis
) -> None:
    """Under uvicorn, with a worker: what is sent waits, moves, goes or runs, and the page shows it."""
    example = Example("fastapi", tmp_path, {"SHOP_REDIS": f"redis://127.0.0.1:{redis_server.port}"})
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with example.running("-m", "uvicorn", "main:api", "--port", str(port), ready="startup complete") as log:
        sent = ask(url, "/reminders", "POST", body={"customer": "Ann", "in_s": 600, "id": "ann"})
        assert (sent.status, sent.json) == (201, {"id": "ann"})
        wanted = [{"customer": f"customer {number}", "in_s": 3600} for number in range(450)]
        assert ask(url, "/reminders/batch", "POST", body=wanted).json == {"sent": 450}
        assert ask(url, "/reminders/count").json == {"count": 451}
        assert ask(url, "/reminders?limit=1").json[0]["id"] == "ann"
        assert "451" in ask(url, "/delayq/").text
        assert ask(url, "/reminders/ann", "DELETE").json == {"outcome": "cancelled"}
        assert ask(url, "/reminders/ann").status == 404
        ask(url, "/reminders", "POST", body={"customer": "Bob", "in_s": 600, "id": "bob"})
        with example.running("-m", "celery", "-A", "tasks", "worker", "-c", "1", "-l", "INFO", ready=" ready.") as done:
            assert ask(url, "/reminders/bob/run", "POST").json == {"outcome": "transferred"}
            until(lambda: "reminded Bob" in done.read_text(), what="the reminder has run")
        stopped = time.monotonic()
    assert time.monotonic() - stopped < 30
    assert "Application shutdown complete" in log.read_text()


def test_a_broker_that_is_away_is_said_to_clients(tmp_path: Path) -> None:
    """Without Redis the server does not start; if Redis goes later, requests get 503 and others are served."""
    with PrivateRedis() as server:
        example = Example("fastapi", tmp_path, {"SHOP_REDIS": f"redis://127.0.0.1:{server.port}"})
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        with example.running("-m", "uvicorn", "main:api", "--port", str(port), ready="startup complete"):
            assert ask(url, "/reminders/count").json == {"count": 0}
            server.close()
            for _ in range(2):  # over a connection that is lost, and over none
                assert ask(url, "/reminders/count").status == 503
                assert ask(url, "/reminders/any", "DELETE").status == 503
            assert ask(url, "/reminders", "POST", body={"customer": "Ann"}).status in (
                503,
                504,
            )  # the result backend tries longer
            assert ask(url, "/openapi.json").status == 200
        starting = example.running("-m", "uvicorn", "main:api", "--port", str(port), ready="startup complete")
        with pytest.raises(AssertionError, match="Application startup failed"), starting:
            pass


def test_the_tests_of_the_example_pass(tmp_path: Path) -> None:
    """In a checkout, without its plugins, they use another app than the server's on their own Redis, or our fixture."""
    example = Example("fastapi", tmp_path, {})
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert "3 passed" in example.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:timeout")
