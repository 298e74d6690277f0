"""``delayq status --watch``: in place on a terminal, one report after another elsewhere."""

import json
import signal
import subprocess
from typing import Any

import click
import pytest
import redis

from celery_ext.cli.commands.status import watch
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from tests.support.commands.shell import BIN, run, terminal
from tests.support.store.keyspace import FUTURE_MS, waiting
from tests.support.workers.held import KEYS

pytestmark = pytest.mark.wide

CLEARED = "\x1b[H\x1b[J"


@pytest.fixture
def store(raw_client: redis.Redis) -> DelayStore:
    """A store with a message in ``orders``."""
    store = DelayStore(raw_client, KEYS)
    store.delivery.offer("orders", waiting("a", FUTURE_MS))
    return store


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_terminal_is_drawn_in_place(
    store: DelayStore, broker: PrivateRedis, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each report takes the place of the last one, also without colours, until Ctrl-C or SIGTERM."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    with terminal(broker, "status", "--watch=0.2", columns=140) as process:
        process.read_until("orders        1")
        assert process.script.startswith(CLEARED)
        store.delivery.offer("orders", *(waiting(f"{n}", FUTURE_MS) for n in range(40)))
        process.read_until("orders       41")
        process.process.send_signal(how)
        assert process.wait() == 0
        assert "Traceback" not in process.script
        assert "\x1b" not in process.script.replace(CLEARED, "")


def test_while_redis_is_away_the_last_report_stays(own_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch says why it learns nothing, keeps what it knew, and goes on when Redis is back."""
    monkeypatch.setenv("TERM", "xterm")
    with terminal(own_server, "status", "--watch=0.2", columns=140) as process:
        process.read_until("no queue holds or held")
        own_server.stop()
        process.read_until("refused")
        own_server.start()
        with own_server.client() as client:
            client.sadd("{delayq}:queues", "back")
        process.read_until("\r\nback  ")
        process.process.send_signal(signal.SIGINT)
        assert process.wait() == 0


def test_an_error_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """An error that stays says nothing new; one that comes back does."""
    found = iter(["one\n", "away", "away", "full", "two\n", "full"])

    def look() -> str:
        text = next(found, None)
        if text is None:
            raise KeyboardInterrupt
        if not text.endswith("\n"):
            raise click.ClickException(text)
        return text

    watch(look, 0.0, in_place=False)
    said = capsys.readouterr()
    assert (said.out.split(), said.err.split()) == (["one", "two"], ["away", "full", "full"])


@pytest.mark.parametrize("dumb", [False, True])
def test_without_a_terminal_reports_follow_each_other(
    store: DelayStore, broker: PrivateRedis, dumb: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into a pipe, and on a terminal that can do nothing else, reports are plain text, without any control."""
    monkeypatch.setenv("TERM", "dumb" if dumb else "xterm")
    streams = {} if dumb else {"stdout": subprocess.PIPE}
    with terminal(broker, "status", "--watch=0.2", columns=140, **streams) as process:
        if dumb:
            process.read_until("leading")
            process.script = ""
            process.read_until("OVERDUE")
            text = process.script
        else:
            assert process.process.stdout
            text = "".join(process.process.stdout.readline().decode() for _ in range(20))
            assert text.count("leading ") >= 2
        process.process.send_signal(signal.SIGINT)
        assert "\x1b" not in text


def test_with_json_each_report_is_a_line(store: DelayStore, broker: PrivateRedis) -> None:
    """``--watch --json`` prints a line for each look, and ends quietly when nobody reads on."""
    args = [str(BIN / "delayq"), "-b", broker.url, "status", "--json", "--watch=0.1", "orders"]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        reports: list[dict[str, Any]] = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""
    assert [report["queues"][0]["delayed"] for report in reports] == [1, 1]


@pytest.mark.parametrize(
    ("args", "text"),
    [(("--watch", "orders"), "--watch"), (("--watch=0"), "--watch looks every 0.1 s at most"), (("--watch=-1"), "-1")],
)
def test_a_wrong_time_is_refused(broker: PrivateRedis, args: Any, text: str) -> None:
    """A time that is none, or too short, is an error of usage."""
    assert text in run(broker, "status", *([args] if isinstance(args, str) else args), code=2).stderr


def test_a_broker_that_is_away_at_the_beginning_ends_the_command(own_server: PrivateRedis) -> None:
    """A wrong URL is no reason to look again and again."""
    own_server.stop()
    assert str(own_server.port) in run(own_server, "status", "--watch", code=1).stderr
