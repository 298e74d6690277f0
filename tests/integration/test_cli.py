import json
import os
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from celery_ext.cli import delayq
from celery_ext.private_redis import PrivateRedis
from tests.integration.harness import HERE, MakeProj, Proj
from tests.waiting import stays, until

BIN = Path(sys.executable).parent


def _delayq(server: PrivateRedis, *args: str) -> Result:
    return CliRunner().invoke(delayq, ["--broker", server.url, *args])


def test_status_counts_delayed_ready_and_overdue(proj: Proj) -> None:
    """`delayq status --json` gives each queue's numbers; nobody transfers, so what is due is overdue."""
    proj.send("record", countdown=0.5, queue="late")
    proj.send("record", countdown=3600, queue="late")
    proj.send("record", queue="late")
    until(lambda: json.loads(_delayq(proj.server, "status", "--json").stdout)["queues"][0]["overdue"])
    report = json.loads(_delayq(proj.server, "status", "--json").stdout)
    [queue] = report["queues"]
    assert (report["broker"], report["leader"]) == (proj.server.url, None)
    assert (queue["queue"], queue["delayed"], queue["ready"], queue["overdue"]) == ("late", 2, 1, 1)
    assert queue["overdue_by_s"] > 0
    assert queue["next_due_in_s"] == pytest.approx(-queue["overdue_by_s"])


def test_status_in_plain_text_names_queues_and_says_that_nobody_leads(proj: Proj) -> None:
    """`delayq status` prints a table, and says in words that no transfer worker runs."""
    proj.send("record", countdown=7200, queue="orders")
    result = _delayq(proj.server, "status")
    assert result.exit_code == 0
    assert "no transfer worker runs" in result.stdout
    row = next(line for line in result.stdout.splitlines() if line.startswith("orders"))
    assert row.split()[1:3] == ["1", "0"]
    assert "(in 2h)" in row or "(in 1h 59m)" in row


def test_status_of_an_empty_broker_says_so(make_proj: MakeProj) -> None:
    """Without delayed messages there is no table, and no error."""
    result = _delayq(make_proj().server, "status")
    assert (result.exit_code, "no queue holds or held" in result.stdout) == (0, True)


def test_a_damaged_queue_hides_no_other(proj: Proj) -> None:
    """A key of another type is named beside the numbers of the sound queues, and the exit code is 1."""
    proj.send("record", countdown=3600, queue="sound")
    proj.send("record", countdown=3600, queue="damaged")
    proj.server.client().set("delayq:{damaged}:due", "x")
    result = _delayq(proj.server, "status")
    assert result.exit_code == 1
    assert any(line.startswith("sound ") for line in result.stdout.splitlines())
    assert "key delayq:{damaged}:due holds a string" in result.stdout
    rows = json.loads(_delayq(proj.server, "status", "--json").stdout)["queues"]
    assert [("error" in row, row["queue"]) for row in rows] == [(True, "damaged"), (False, "sound")]


def test_sentinel_without_the_name_of_its_master_is_told_in_words() -> None:
    """What kombu finds missing ends the command in one line."""
    result = CliRunner().invoke(delayq, ["--broker", "delayq+sentinel://127.0.0.1:1", "status"])
    assert result.exit_code == 1
    assert "'master_name' transport option must be specified" in result.output


def test_status_as_a_celery_command_shows_the_queues_of_the_app(proj: Proj) -> None:
    """`celery -A proj delayq status` needs no broker, and lists the app's queues too."""
    result = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "proj", "delayq", "status"],
        cwd=HERE,
        env={**os.environ, "PROJ_CONF": json.dumps({**proj.conf, "task_default_queue": "mine"})},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert any(line.startswith("mine ") for line in result.stdout.splitlines())


def test_an_unreachable_broker_is_told_without_its_password() -> None:
    """The error names the broker and the reason, not the password, and the exit code is 1."""
    result = CliRunner().invoke(delayq, ["--broker", "redis://:s3cret@127.0.0.1:1/0", "status"])
    assert result.exit_code == 1
    assert "redis://:**@127.0.0.1:1/0" in result.output
    assert "s3cret" not in result.output


@pytest.mark.parametrize("args", [["status"], ["--broker", "redis://", "-o", "nonsense", "status"], ["nonsense"]])
def test_what_is_not_understood_exits_with_2(args: list[str]) -> None:
    """No broker, a malformed option, or an unknown command: exit code 2, with what to write."""
    result = CliRunner().invoke(delayq, args, env={"DELAYQ_BROKER_URL": "", "CELERY_BROKER_URL": ""})
    assert result.exit_code == 2, result.output


def test_a_misspelled_transport_option_is_refused_by_name(proj: Proj) -> None:
    """`-o tranfer=false` fails, and says what was meant."""
    result = _delayq(proj.server, "-o", "tranfer=false", "status")
    assert result.exit_code == 1
    assert "did you mean 'transfer'" in result.output


def test_a_transfer_worker_of_its_own_delivers_and_stops_cleanly(proj: Proj) -> None:
    """`delayq transfer` serves a worker that runs none, and SIGTERM ends it with exit code 0 and its lease."""
    proj.worker(broker_transport_options={"transfer": False})
    process = subprocess.Popen(
        [BIN / "delayq", "--broker", proj.server.url, "transfer", "--loglevel", "DEBUG"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        client = proj.server.client()
        leader = until(lambda: client.get("delayq:transfer"))
        assert f":{process.pid}:" in str(leader)
        proj.send("record", countdown=1)
        proj.await_runs(1)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=10)
    finally:
        process.kill()
    assert process.returncode == 0
    assert client.get("delayq:transfer") is None
    assert "1 transferred" in log


@pytest.mark.parametrize("known", [True, False])
def test_a_transfer_worker_looks_after_queues_that_it_is_given(proj: Proj, known: bool) -> None:
    """`delayq transfer -Q` delivers what others have put into queues that Celery has never used; it leaves the rest."""
    client = proj.server.client()
    for queue in ("shared", "also shared", "not ours"):
        entry = b"\x08" + bytes(8) + struct.pack("<Q", 4) + queue[:4].encode()
        client.zadd(f"redisson_delay_queue_timeout:{{{queue}}}", {entry: 1})
        client.rpush(f"redisson_delay_queue:{{{queue}}}", entry)
    given = ("-Q", "shared,also shared") if known else ()
    process = subprocess.Popen([BIN / "delayq", "--broker", proj.server.url, "transfer", *given])
    try:
        until(lambda: client.get("delayq:transfer"))
        if known:
            until(lambda: client.lrange("shared", 0, -1) + client.lrange("also shared", 0, -1) == ["shar", "also"])
            assert client.smembers("delayq:queues") == {"shared", "also shared"}
        else:
            stays(lambda: not client.exists("shared", "also shared"), 1.5)
        assert not client.exists("not ours")
    finally:
        process.terminate()
        process.wait(timeout=10)


def test_the_demo_loses_nothing() -> None:
    """`delayq demo` ends by itself with exit code 0 and its table, which tells of the chain and the cancelled task."""
    result = subprocess.run([BIN / "delayq", "demo"], capture_output=True, text=True, timeout=90)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "kill -9" in result.stdout
    assert "nothing lost, nothing early, nothing double" in result.stdout
    assert "failed 3 times, then succeeded" in result.stdout
    assert re.search(r"^cancelled +never ran$", result.stdout, re.MULTILINE)


def test_a_worker_whose_url_bypasses_the_transport_does_not_start(make_proj: MakeProj) -> None:
    """`redis+socket://` makes kombu drop broker_transport; the worker ends and says what to write."""
    server = make_proj().server
    proj = make_proj(broker_url=f"redis+socket://{server.socket_path}")
    worker = proj.worker(wait=False)
    assert worker.process.wait(30) != 0
    assert "write delayq+socket://" in worker.log


def test_a_unix_socket_url_of_ours_works(make_proj: MakeProj) -> None:
    """The `delayq+socket` form of the same URL delays and delivers."""
    server = make_proj().server
    proj = make_proj(broker_url=f"delayq+socket://{server.socket_path}")
    proj.worker()
    proj.send("record", countdown=2)
    assert server.client().zcard("delayq:{celery}:due") == 1
    proj.await_runs(1)
