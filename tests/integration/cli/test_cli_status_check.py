"""``delayq status --check``: one line and an exit code, as monitoring plugins have them."""

import json
import os
import re
import signal
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from celery_ext.cli import delayq
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from tests.support.commands.shell import run
from tests.support.slots import KEYS
from tests.support.store.consuming import lives
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, waiting

#: State, text, performance data.
LINE = re.compile(r"DELAYQ (OK|WARNING|CRITICAL|UNKNOWN) - ([^|\n]+)(?:\|([^|\n]*))?\n")
CODES = {"OK": 0, "WARNING": 1, "CRITICAL": 2, "UNKNOWN": 3}


def checked(server: PrivateRedis, state: str, *args: str) -> tuple[str, dict[str, str]]:
    """Runs a check, which ends in a state. Returns its text and its performance data."""
    result = run(server, "status", "--check", *args, code=CODES[state])
    match = LINE.fullmatch(result.stdout)
    assert match is not None, result.stdout
    assert match[1] == state
    return match[2], dict(item.split("=") for item in (match[3] or "").split())


@pytest.fixture
def store(raw_client: redis.Redis) -> DelayStore:
    """A store with a leader; of ``orders`` 2 messages are overdue and 3 ready, of ``mail`` 1 is to come."""
    store = DelayStore(raw_client, KEYS)
    store.delivery.offer("orders", waiting("a", PAST_MS), waiting("b", PAST_MS + 1), waiting("c", FUTURE_MS))
    store.delivery.offer("mail", waiting("d", FUTURE_MS))
    raw_client.lpush("orders", "{}", "{}", "{}")
    raw_client.sadd(store.keys.dead_letters, "failed", "undelivered")
    raw_client.lpush("failed", "{}", "{}")
    raw_client.set(store.keys.lease, "host:1:00000000")
    return store


def test_without_complaints_it_is_ok(store: DelayStore, broker: PrivateRedis) -> None:
    """Where no limit is passed the exit code is 0, and the line has the totals and each measure of the worst queue."""
    text, data = checked(broker, "OK", "--leader", "--max-ready", "3", "--warn-dead-letters", "2")
    assert text == "host:1:00000000 leads, queues: 2, 4 delayed, 3 ready, 2 overdue, 2 dead letters"
    assert float(data.pop("overdue").partition("s;;;0")[0]) > 1_000_000
    assert data == {"ready": "3;;3;0", "delayed": "3;;;0", "dead_letters": "2;2;;0", "leader": "1"}
    assert checked(broker, "OK")[0] == text
    assert checked(broker, "OK", "--max-overdue", "5s", "--max-delayed", "1", "mail")[1]["overdue"] == "0.0s;;5;0"


@pytest.mark.parametrize(
    ("state", "args", "text"),
    [
        ("CRITICAL", ("--max-overdue", "5s"), r"orders: overdue by \S.* \(limit 5.0s\)"),
        ("WARNING", ("--warn-overdue", "5"), r"orders: overdue by \S.* \(limit 5.0s\)"),
        ("CRITICAL", ("--warn-overdue", "5s", "--max-overdue", "1m"), r"orders: overdue by \S.* \(limit 1m 0s\)"),
        ("CRITICAL", ("--max-ready", "2"), r"orders: 3 ready \(limit 2\)"),
        ("WARNING", ("--warn-ready", "2", "--max-ready", "3"), r"orders: 3 ready \(limit 2\)"),
        ("CRITICAL", ("--max-delayed", "0"), r"orders: 3 delayed \(limit 0\); mail: 1 delayed \(limit 0\)"),
        ("CRITICAL", ("--max-dead-letters", "1"), r"failed: 2 dead letters \(limit 1\)"),
        ("WARNING", ("--warn-dead-letters", "1"), r"failed: 2 dead letters \(limit 1\)"),
        ("WARNING", ("--consumers",), r"no consumer is known of orders"),
        (
            "CRITICAL",
            ("--consumers", "--warn-delayed", "2", "--max-ready", "1"),
            r"orders: 3 ready \(limit 1\); orders: 3 delayed \(limit 2\); no consumer is known of orders",
        ),
    ],
)
def test_what_is_above_a_limit_is_named(
    store: DelayStore, broker: PrivateRedis, state: str, args: tuple[str, ...], text: str
) -> None:
    """A queue above a limit is named with number and limit, the worst first; the worst state is the exit code."""
    found, _ = checked(broker, state, *args)
    assert re.fullmatch(text, found)


def test_no_leader_is_critical(store: DelayStore, broker: PrivateRedis) -> None:
    """Without a leading transfer worker ``--leader`` is critical; without the option the line says it."""
    store.client.delete(store.keys.lease)
    text, data = checked(broker, "CRITICAL", "--leader", "--warn-ready", "1")
    assert text == "no transfer worker leads; orders: 3 ready (limit 1)"
    assert data["leader"] == "0"
    assert checked(broker, "OK")[0].startswith("nobody leads, ")


def test_a_consumer_is_known(store: DelayStore, broker: PrivateRedis) -> None:
    """With a living consumer of its own a queue is no warning; one that holds its messages counts as well."""
    lives(store, queues=("mail", "orders"))
    checked(broker, "OK", "--consumers")
    for share in store.consumers.shares():
        assert store.client.delete(store.keys.consumers(share)) == 1
    checked(broker, "WARNING", "--consumers")
    share = store.keys.share("orders")
    store.client.zadd(store.keys.unacked_index(share), {"of stock": 1})
    store.client.hset(store.keys.unacked(share), "of stock", json.dumps([{}, "", "orders"]))
    checked(broker, "OK", "--consumers")


def test_many_queues_make_no_long_line(store: DelayStore, broker: PrivateRedis) -> None:
    """Of many queues above a limit the three that are farthest above it are named."""
    for n in range(9):
        store.client.lpush(f"late{n}", *["{}"] * (n + 4))
        store.client.sadd(store.keys.queues, f"late{n}")
    text, _ = checked(broker, "CRITICAL", "--max-ready", "1")
    assert text == "late8: 12 ready (limit 1); late7: 11 ready (limit 1); late6: 10 ready (limit 1)"
    assert checked(broker, "WARNING", "--consumers")[0] == "no consumer is known of late0, late1, late2 and 7 more"


def test_what_cannot_be_read_is_unknown(store: DelayStore, broker: PrivateRedis) -> None:
    """A key of the wrong type, and a queue that nobody knows, are unknown; what is critical comes before that."""
    store.client.set("delayq:{mail}:due", "x")
    text, _ = checked(broker, "UNKNOWN", "--max-delayed", "9")
    assert text.startswith("mail cannot be read: ")
    text, _ = checked(broker, "CRITICAL", "--max-ready", "1")
    assert text.startswith("orders: 3 ready (limit 1); mail cannot be read: ")
    assert checked(broker, "UNKNOWN", "nobody")[0].startswith("something that was asked for is not known")


def test_a_broker_that_does_not_answer_is_unknown(own_server: PrivateRedis) -> None:
    """If Redis is away, or hangs, the exit code is 3 and the line says why, without the password."""

    def ends(url: str, *options: str) -> str:
        result = CliRunner().invoke(delayq, ["-b", url, *options, "status", "--check", "--leader"])
        assert result.exit_code == 3, result.output
        return result.stdout

    os.kill(own_server.pid, signal.SIGSTOP)
    assert "imeout" in ends(own_server.url, "-o", "redis_timeout=0.2")
    os.kill(own_server.pid, signal.SIGCONT)
    own_server.stop()
    line = ends(f"redis://:secret@127.0.0.1:{own_server.port}/0")
    assert line.startswith("DELAYQ UNKNOWN - redis://:**@127.0.0.1")
    assert "secret" not in line
    assert ends("nonsense://x").startswith("DELAYQ UNKNOWN - ")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--max-ready", "many"), "'many' is not a valid integer"),
        (("--max-ready", "-1"), "-1 is not in the range"),
        (("--max-overdue", "soon"), "soon"),
        (("--what",), "--what"),
        (("--warn-ready", "5", "--max-ready", "4"), "--warn-ready is above --max-ready"),
        (("--json",), "neither --json nor --watch"),
        (("--watch=1",), "neither --json nor --watch"),
    ],
)
def test_wrong_options_are_unknown(broker: PrivateRedis, args: tuple[str, ...], text: str) -> None:
    """With --check a wrong command line has the exit code 3, because 2 would be CRITICAL to a monitor."""
    assert text in checked(broker, "UNKNOWN", *args)[0]


def test_limits_need_a_check(broker: PrivateRedis) -> None:
    """A limit without --check would do nothing, so it is refused."""
    assert "limits need --check" in run(broker, "status", "--max-ready", "5", code=2).stderr


def test_odd_names_keep_the_line_whole(store: DelayStore, broker: PrivateRedis) -> None:
    """A queue whose name has a line break, a bar or an escape stays in the text of the one line."""
    store.client.lpush("a\n|\x1b[2J=1", "{}", "{}")
    store.client.sadd(store.keys.queues, "a\n|\x1b[2J=1")
    text, data = checked(broker, "CRITICAL", "--max-ready", "1")
    assert "a \\x7c\\x1b[2J=1: 2 ready (limit 1)" in text
    assert data["ready"] == "3;;1;0"


def test_status_shows_dead_letters_and_queues_without_consumers(store: DelayStore, broker: PrivateRedis) -> None:
    """The report has them, too: dead letters by queue, and a queue whose messages nobody is known to take."""

    def rows(*args: str) -> tuple[dict[str, tuple[Any, ...]], list[dict[str, Any]]]:
        report = json.loads(run(broker, "status", "--json", *args).stdout)
        of_queue = {row["queue"]: (row["consumers"], row["unacked"], row["no_consumer"]) for row in report["queues"]}
        return of_queue, report["dead_letters"]

    letters = [{"queue": "failed", "messages": 2}, {"queue": "undelivered", "messages": 0}]
    assert rows() == ({"mail": (0, 0, False), "orders": (0, 0, True)}, letters)
    assert rows("failed", "orders") == ({"failed": (0, 0, False), "orders": (0, 0, True)}, letters[:1])
    text = run(broker, "status").stdout
    assert "\nDEAD LETTERS IN  MESSAGES\nfailed                  2\n" in text
    assert "messages are ready or due, and no consumer is known: orders\n(a consumer on the stock transport" in text
    assert re.search(r"^orders +3 +3 +none known ", text, re.MULTILINE)
    lives(store, queues=("orders",))
    assert rows()[0]["orders"] == (1, 0, False)
    assert "no consumer is known" not in run(broker, "status").stdout


def test_messages_that_a_rate_holds_back_are_not_late(raw_client: redis.Redis, broker: PrivateRedis) -> None:
    """A queue that is held back is no complaint, until its next message could have left and nobody transfers."""
    store = DelayStore(raw_client, KEYS, options=Options(transfer_rate=0.1, overdue={"news": "drop"}, max_lateness=60))
    store.delivery.offer("sms", *(waiting(str(number), PAST_MS) for number in range(61)))
    store.delivery.offer("news", waiting("too late", PAST_MS))
    store.delivery.transfer("sms")
    store.delivery.transfer("news")
    text, data = checked(broker, "OK", "--max-overdue", "5s")
    assert "60 overdue, 60 of these held back by a transfer_rate" in text
    assert data["overdue"] == "0.0s;;5;0"
    shown = run(broker, "status").stdout
    assert re.search(r"sms +60 .* 60 by .*, held back at 0.1/s until about \S+", shown)
    assert "too late in news: 1 dropped so far" in shown
    raw_client.hset(store.keys.bucket("sms"), "held", repr(store.now_ms() - 60_000))
    assert "sms: overdue by" in checked(broker, "CRITICAL", "--max-overdue", "5s")[0]
