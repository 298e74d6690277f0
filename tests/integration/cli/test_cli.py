import json
import os
import re
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import unittest.mock
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
import redis
from click.testing import CliRunner, Result

from celery_ext.cli import delayq
from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import stays, until
from tests.support.workers.harness import APPS, MakeProj, Proj

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
        cwd=APPS,
        env={**os.environ, "PROJ_CONF": json.dumps({**proj.conf, "task_default_queue": "mine"})},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert any(line.startswith("mine ") for line in result.stdout.splitlines())


def test_a_variable_does_not_override_the_broker_of_an_app(proj: Proj, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `celery -A proj` the app's broker is asked, whatever DELAYQ_BROKER_URL says; an option goes before both."""
    monkeypatch.setenv("DELAYQ_BROKER_URL", "redis://:s3cret@127.0.0.1:1/0")
    report = json.loads(proj.celery("delayq", "status", "--json"))
    assert report["broker"] == proj.server.url
    report = json.loads(proj.celery("delayq", "-b", f"{proj.server.url[:-1]}7", "status", "--json"))
    assert report["broker"] == f"{proj.server.url[:-1]}7"


def test_a_variable_names_the_broker_of_an_app_without_one(
    make_proj: MakeProj, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the app says nothing of a broker, the variable does."""
    proj = make_proj()
    monkeypatch.setenv("DELAYQ_BROKER_URL", proj.server.url)
    proj.conf["broker_url"] = None
    assert json.loads(proj.celery("delayq", "status", "--json"))["broker"] == proj.server.url


@pytest.mark.parametrize("args", [["cancel", "t"], ["cancel", "t", "u"], ["purge", "celery"], ["repair"]])
def test_a_question_names_the_broker_and_its_prefix_without_the_password(
    own_server: PrivateRedis, make_proj: MakeProj, args: list[str]
) -> None:
    """Before it removes or mends something, a command says where: also where nobody can be asked."""
    own_server.client().config_set("requirepass", "s3cret")
    url = own_server.url.replace("redis://", "redis://:s3cret@")
    options = {"global_keyprefix": "shop."}
    proj = make_proj(server=own_server, broker_url=url, broker_transport_options=options)
    proj.send("record", countdown=3600, task_id="t")
    with redis.Redis(port=own_server.port, password="s3cret") as client:
        client.delete("shop.delayq:queues")
    result = CliRunner().invoke(delayq, ["-b", url, "-o", "global_keyprefix=shop.", *args])
    assert result.exit_code == 2, result.output
    assert f" on {url.replace('s3cret', '**')} with key prefix 'shop.'? Nobody can be asked" in result.output


def test_the_roll_back_delivers_what_waits_under_a_key_prefix(make_proj: MakeProj) -> None:
    """After the setting is taken out, `celery -A proj delayq transfer` moves what waits; its status tells of both."""
    options = {"broker_transport_options": {"global_keyprefix": "shop."}}
    make_proj(**options).send("record", "before", countdown=2)
    proj = make_proj(broker_transport=None, **options)
    status = proj.celery("delayq", "status")
    assert "uses the stock transport 'redis' itself" in status
    assert re.search(r"^celery +1 +0 ", status, re.MULTILINE)
    proj.worker()
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "proj", "delayq", "transfer"],
        cwd=APPS,
        env={**os.environ, **proj.environment()},
    )
    try:
        proj.await_runs(1, value="before")
    finally:
        process.terminate()
        assert process.wait(10) == 0
    assert json.loads(proj.celery("delayq", "status", "--json"))["queues"][0]["delayed"] == 0


def test_status_and_transfer_tell_of_messages_under_other_key_prefixes(make_proj: MakeProj) -> None:
    """What a command without the prefix does not see is counted, with how to reach it; what is empty is not."""
    for prefix, count in (("shop.", 2), ("empty.", 0), ("*[a", 3)):
        proj = make_proj(broker_transport_options={"global_keyprefix": prefix})
        for n in range(max(count, 1)):
            proj.send("record", countdown=3600, task_id=f"{n}")
        if not count:
            assert proj.app.control.purge() == 1
    server = proj.server
    server.client().set("odd.delayq:queues", "a key of another kind")
    report = json.loads(_delayq(server, "status", "--json").stdout)
    assert (report["queues"], report["other_prefixes"]) == ([], {"*[a": 3, "shop.": 2})
    assert json.loads(_delayq(server, "-o", "global_keyprefix=shop.", "status", "--json").stdout) == {
        **report,
        "global_keyprefix": "shop.",
        "queues": unittest.mock.ANY,
        "other_prefixes": {"*[a": 3},
    }
    text = _delayq(server, "status").stdout
    assert "3 with global_keyprefix '*[a', 2 with global_keyprefix 'shop.'" in text
    assert "give -o global_keyprefix=*[a, or run it as `celery -A app delayq" in text
    with _transfer(server.url) as process:
        _read_until(process, "2 with global_keyprefix 'shop.'")


def test_a_large_database_is_not_searched_for_other_prefixes(own_server: PrivateRedis) -> None:
    """Among 200,000 keys of others status looks at some thousand at most, and is quick."""
    client = own_server.client()
    client.eval("for n = 1, 200000 do redis.call('SET', 'celery-task-meta-' .. n, 'x') end", 0)
    client.config_resetstat()
    assert _delayq(own_server, "status").exit_code == 0
    assert client.info("commandstats")["cmdstat_scan"]["calls"] == 10


def test_status_says_that_the_app_itself_uses_stock_redis(make_proj: MakeProj) -> None:
    """A forgotten broker_transport is said, also one that kombu drops for a URL; an app of ours hears nothing."""
    server = make_proj().server
    for conf in ({"broker_transport": None}, {"broker_url": f"redis+socket://{server.socket_path}"}):
        proj = make_proj(**conf)
        assert "uses the stock transport 'redis' itself" in proj.celery("delayq", "status")
        assert json.loads(proj.celery("delayq", "status", "--json"))["stock_transport"] == "redis"
    for conf in ({}, {"broker_transport": None, "broker_url": f"delayq://127.0.0.1:{server.port}/0"}):
        proj = make_proj(**conf)
        assert "stock" not in proj.celery("delayq", "status")
        assert json.loads(proj.celery("delayq", "status", "--json"))["stock_transport"] is None


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


#: Lets the first wait of the transfer worker send a signal while it holds the lock that a stop takes as well.
IN_THE_MIDDLE = """
import os, signal, sys, threading, time
name, wait = sys.argv.pop(), threading.Event.wait
def in_the_middle(event, timeout=None):
    if "_stopping" not in repr(sys._getframe(1).f_code.co_names):
        return wait(event, timeout)
    threading.Event.wait = wait
    with event._cond:
        os.kill(os.getpid(), getattr(signal, name))
        time.sleep(0.2)
    return wait(event, timeout)
threading.Event.wait = in_the_middle
from celery_ext.cli import delayq
delayq()
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_in_the_middle_of_a_wait_ends_the_transfer_worker(redis_server: PrivateRedis, name: str) -> None:
    """A signal that comes while the transfer worker holds the lock of its own wait ends it, with exit code 0."""
    command = [sys.executable, "-c", IN_THE_MIDDLE, "--broker", redis_server.url, "transfer", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert "stopped" in done.stderr
    assert redis_server.client().get("delayq:transfer") is None


@pytest.mark.parametrize("known", [True, False])
def test_a_transfer_worker_looks_after_queues_that_it_is_given(proj: Proj, known: bool) -> None:
    """`delayq transfer -Q` delivers what others have put into queues that Celery has never used; it leaves the rest."""
    client = proj.server.client()
    for queue in ("shared", "also shared", "not ours"):
        entry = b"\x08" + bytes(8) + struct.pack("<Q", 4) + queue[:4].encode()
        client.zadd(f"redisson_delay_queue_timeout:{{{queue}}}", {entry: 1})
        client.rpush(f"redisson_delay_queue:{{{queue}}}", entry)
    given = ("--also", "shared,also shared") if known else ()
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


def _transfer(url: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen([BIN / "delayq", "-b", url, *args, "transfer"], stderr=subprocess.PIPE, text=True)


def _read_until(process: subprocess.Popen[str], text: str) -> None:
    """Reads what a process logs until a text comes, and ends it as a supervisor does."""
    assert process.stderr
    try:
        assert any(text in line for line in process.stderr), f"{text!r} was not logged"
    finally:
        process.terminate()
        process.communicate(timeout=20)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:wrong@127.0.0.1:{port}/0", "invalid username-password pair"),
        ("redis://127.0.0.1:{port}/0", "Authentication required"),
        ("redis://:s3cret@127.0.0.1:{port}/99", "DB index is out of range"),
        ("redis://poor:pw@127.0.0.1:{port}/0", "no permissions to run the 'smembers' command"),
        ("redis://127.0.0.1:1/0;redis://:wrong@127.0.0.1:{port}/0;redis://:wrong@127.0.0.1:{port}/1", None),
        ("redis://127.0.0.1:{other}/0", "rotocol"),
        ("delayqs://127.0.0.1:{other}/0", "WRONG_VERSION_NUMBER"),
        ("127.0.0.1:{port}", "write redis://127.0.0.1:"),
    ],
)
def test_a_transfer_worker_that_can_never_connect_ends(own_server: PrivateRedis, url: str, said: str | None) -> None:
    """An error that does not end by itself ends it with 1 and says why, but while another broker may come back."""
    client = own_server.client()
    client.acl_setuser("poor", enabled=True, passwords=["+pw"], keys=["*"], commands=["+ping", "+info", "+get"])
    client.config_set("requirepass", "s3cret")
    with _web_server() as other:
        process = _transfer(url.format(port=own_server.port, other=other))
        if said is None:
            _read_until(process, "Redis cannot be used")
            return
        _, log = process.communicate(timeout=30)
    assert process.returncode == 1, log
    assert said in log.splitlines()[-1]
    assert log.splitlines()[-1].startswith("Error: ")
    assert "s3cret" not in log
    assert "wrong@" not in log


@contextmanager
def _web_server() -> Iterator[int]:
    """Runs something that answers, and is no Redis; gives its port."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Web) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


class _Web(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(1)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize("url", ["redis://127.0.0.1:{port}/0", "redis://no.such.host.invalid:{port}/0"])
def test_a_transfer_worker_waits_for_a_redis_that_may_come(own_server: PrivateRedis, url: str) -> None:
    """A refused connection and an unknown host are said at once, and again after a while, and then waited for."""
    own_server.stop()
    process = _transfer(url.format(port=own_server.port))
    assert process.stderr
    try:
        assert any("Redis cannot be used, delayed messages wait" in line for line in process.stderr)
        assert any("still waiting for Redis, for 1" in line for line in process.stderr)
        own_server.start()
        if "127.0.0.1" in url:
            assert any("Redis can be used again" in line for line in process.stderr)
    finally:
        process.terminate()
        process.communicate(timeout=20)
    assert process.returncode == 0


def test_a_transfer_worker_stops_while_nobody_answers(own_server: PrivateRedis) -> None:
    """SIGTERM ends it at once, although it waits for an answer, and that wait ends by itself too."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        with _transfer(url) as process:
            silent.accept()
            process.terminate()
            assert process.wait(3) == 0
        _read_until(_transfer(url, "-o", "redis_timeout=0.3"), "Redis cannot be used, delayed messages wait: Timeout")


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
