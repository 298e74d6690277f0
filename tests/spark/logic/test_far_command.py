"""The command for cron shows, cancels and cleans without Spark."""

import io
from pathlib import Path

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.__main__ import main
from tests.spark.logic.test_without_spark import run_without
from tests.support.spark.far import HOUR, commit

IDS = ["00000000-0000-4000-8000-000000000001", "second", "third"]


def test_status_shows_hours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each hour is shown with its rows, and the sum at the end."""
    commit(tmp_path, IDS, hours=2)
    assert main(["status", str(tmp_path)]) == 0
    first, _, total = capsys.readouterr().out.splitlines()
    assert first.split() == [HOUR, "2"]
    assert total.startswith("3 rows in 2 hours")


def test_ids_from_stdin_are_cancelled(
    tmp_path: Path,
    redis_server: PrivateRedis,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each line of stdin is an id, and the outcomes are counted."""
    commit(tmp_path, IDS)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"second\n\n{IDS[0]}\nunknown\n"))
    assert main(["cancel", str(tmp_path), "--broker-url", redis_server.url]) == 0
    assert capsys.readouterr().out.splitlines() == ["2 cancelled", "1 not_delayed"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["promote", "/mnt/far"], "which broker"),
        (["promote", "ftp://host/far", "--broker-url", "redis://127.0.0.1:1/0"], "far"),
        (["vacuum", "ftp://host/far"], "far"),
    ],
)
def test_errors_are_in_words(
    command: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong is said on stderr, and the exit code is 1."""
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", classmethod(lambda _: object()))
    assert main(command) == 1
    assert message in capsys.readouterr().err


def test_the_command_says_that_spark_is_missing() -> None:
    """Without the packages of the extra, the error says what to install."""
    code = (
        "from celery_ext.spark.__main__ import main\n"
        "print(main(['promote', '/mnt/far', '--broker-url', 'redis://127.0.0.1:1/0']))"
    )
    done = run_without(("pyspark", "pyarrow"), code)
    assert done.stdout.strip() == "1"
    assert "pyspark is missing: pip install 'kombu-delayq[spark]'" in done.stderr
