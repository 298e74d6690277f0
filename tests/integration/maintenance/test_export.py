"""``delayq export`` and ``import``: a backlog goes to a file and comes back as it was, also in the other layout."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.waiting import by_id
from kombu_delayq.options import LAYOUTS, Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.commands.exports import FUTURE_MS, exported, keys, message, offer
from tests.support.commands.shell import BIN, lines, run, terminal
from tests.support.conditions import until
from tests.support.messages import plain_message, task_message
from tests.support.servers.proxies import Proxy
from tests.support.store import redisson_layout
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.held import KEYS

#: Runs `delayq` and then tells on stderr how much memory it ever took, in KB.
MEASURED = """
import re, sys
from pathlib import Path
from celery_ext.cli import delayq
try:
    delayq(sys.argv[1:])
finally:  # not by getrusage, which also knows of the parent
    print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1], file=sys.stderr)
"""


@pytest.fixture
def store(raw_client: redis.Redis) -> DelayStore:
    return DelayStore(raw_client, KEYS)


@pytest.mark.journey
def test_a_backlog_moves_to_another_server_and_is_delivered_there_in_order(make_proj: MakeProj) -> None:
    """Tasks of two queues, with priorities, duplicates and an equal eta, run once each on another server."""
    proj = make_proj(broker_transport_options={"queue_order_strategy": "priority"})
    for n in range(200):
        proj.send("record", n, eta=f"2100-01-01T00:00:{n // 40:02d}+00:00", queue="celery", priority=(n % 2) * 5)
    eta = time.time() + 4
    for n in range(100):
        due = datetime.fromtimestamp(eta if n % 2 else eta + 3600, UTC)
        proj.send("record", n, eta=due, queue="mail", task_id=f"t{n // 2}")
    run(proj.server, "export", "--output", "/dev/null")
    text = "\n".join(exported(proj.server)) + "\n"
    before = keys(redis.Redis(port=proj.server.port))
    with PrivateRedis() as other:
        result = run(other, "import", stdin=text)
        assert result.stdout.splitlines() == [
            "queue celery: 200 imported",
            "queue mail: 50 imported, 50 imported beside others of the same id",
        ]
        elsewhere = Proj(other, {**proj.conf, "broker_url": other.url}, proj.journal_server)
        try:
            elsewhere.worker("-Q", "celery,mail", concurrency=1)
            ran = elsewhere.await_runs(50)
            assert min(run["at"] for run in ran) >= eta - 0.1
            assert [run["value"] for run in ran] == list(range(1, 100, 2))
            # What still waits is in the order in which it would have been delivered here.
            assert _order(DelayStore(redis.Redis(port=other.port), KEYS)) == _order(
                DelayStore(redis.Redis(port=proj.server.port), KEYS)
            )
        finally:
            elsewhere.close()
    assert keys(redis.Redis(port=proj.server.port)) == before


def _order(store: DelayStore) -> list[bytes | None]:
    return [each.body for each in by_id.browse(store, "celery")]


def test_an_export_has_all_that_waits_and_says_so(broker: PrivateRedis, store: DelayStore) -> None:
    """Between a header and a closing line, each message has a line, of each queue in the order of the due times."""
    store.delivery.offer("b", offer("late", 3_000_000_000_000.125), offer("early", 2_000_000_000_000.5, priority=7))
    store.delivery.offer("a", offer("other"))
    header, *found, closing = map(json.loads, exported(broker))
    assert {name: header[name] for name in ("format", "version", "broker")} == {
        "format": "delayq-export",
        "version": 1,
        "broker": broker.url,
    }
    assert [(each["queue"], each["id"], each["due_ms"], each["priority"]) for each in found] == [
        ("a", "other", FUTURE_MS, 0),
        ("b", "early", 2_000_000_000_000.5, 7),
        ("b", "late", 3_000_000_000_000.125, 0),
    ]
    assert found[1]["due"] == "2033-05-18T03:33:20.000500+00:00"
    assert found[1]["body"] == message("early")
    assert closing == {"format": "delayq-export", "messages": 3}


def test_an_import_can_be_repeated(broker: PrivateRedis, store: DelayStore) -> None:
    """The second import finds each message there already, duplicates and marked ones among them, and adds none."""
    store.delivery.offer("q", *(offer(f"t{n}") for n in range(700)))
    store.delivery.offer("q", *(Offer("t1", repr(FUTURE_MS - n), 3, message(f"n{n}", "t1")) for n in range(3)))
    text = "\n".join(exported(broker)) + "\n"
    store.client.flushall()
    first = lines(broker, "import", stdin=text)
    assert first == [{"queue": "q", "offered": 700, "repeated": 0, "renamed": 3}]
    before = keys(store.client)
    assert lines(broker, "import", stdin=text + text) == [{"queue": "q", "offered": 0, "repeated": 1406, "renamed": 0}]
    assert keys(store.client) == before


@pytest.mark.wide
def test_what_is_overdue_is_delivered_at_once_and_another_queue_gets_retries_too(make_proj: MakeProj) -> None:
    """With --queue, tasks run from the new queue, and what they retry goes there as well."""
    proj = make_proj()
    proj.send("flaky", 1, 0.5, countdown=1.5, queue="old", task_id="t")
    lines_ = exported(proj.server)
    proj.server.client().flushall()
    until(lambda: time.time() > json.loads(lines_[1])["due_ms"] / 1000, what="it is overdue")
    run(proj.server, "import", "--queue", "new", stdin="\n".join(lines_))
    proj.worker("-Q", "new", concurrency=1)
    assert [(each["id"], each["queue"]) for each in proj.await_runs(2)] == [("t", "new"), ("t", "new")]


def test_an_export_that_is_cut_off_is_noticed(broker: PrivateRedis, store: DelayStore) -> None:
    """Without its end, its beginning or a line in between, all that is there is imported, and the exit code is 1."""
    store.delivery.offer("q", *(offer(f"t{n}") for n in range(5)))
    found = exported(broker)
    for part, what in (
        (found[:-1], "cut off"),
        (found[1:], "without a header"),
        ([*found[:2], *found[3:]], "the export had 5 messages, and 4 are here"),
        ([*found[:-1], *found], "cut off"),
        (found[-1:], "without its beginning"),
        ([], "the export is empty"),
    ):
        store.client.flushall()
        result = run(broker, "import", stdin="\n".join(part), code=1)
        assert what in result.stderr
        assert store.queues.size("q") == len({each for each in part if '"id"' in each})
    store.client.flushall()
    empty = [found[0], found[-1].replace("5", "0")]
    run(broker, "import", stdin="\n".join(["", *empty, *found, "", *found, *empty, ""]))
    assert store.queues.size("q") == 5


def test_a_bad_line_is_named_and_ends_the_import(broker: PrivateRedis, store: DelayStore) -> None:
    """What is before it is imported, what is after it is not; with --skip-bad it is."""
    store.delivery.offer("q", *(offer(f"t{n}") for n in range(3)))
    found = exported(broker)
    text = "\n".join([*found[:2], found[2][:-9], *found[3:]])
    store.client.flushall()
    result = run(broker, "import", stdin=text, code=1)
    assert "line 3: it is no JSON, or cut off" in result.stderr
    assert result.stdout == "queue q: 1 imported\n"
    run(broker, "import", "--skip-bad", stdin=text)
    assert store.queues.size("q") == 2


def test_a_file_replaces_another_only_when_asked_and_when_complete(
    broker: PrivateRedis, store: DelayStore, tmp_path: Path
) -> None:
    """Without --yes an export that is there stays, and one that fails half way leaves it as it was."""
    file = tmp_path / "backlog.jsonl"
    file.write_text("precious")
    store.delivery.offer("q", offer("t"))
    store.client.set("delayq:{damaged}:due", "x")
    store.queues.know("damaged")
    assert "Replace" in run(broker, "export", "--output", str(file), code=2).stderr
    assert file.read_text() == "precious"
    result = run(broker, "export", "--yes", "--json", "--output", str(file), code=1)
    assert json.loads(result.stdout) == {"queue": "q", "messages": 1}
    assert "queue 'damaged': WRONGTYPE" in result.stderr
    assert [json.loads(line).get("messages") for line in file.read_text().splitlines()] == [None, None, 1]
    assert os.listdir(tmp_path) == ["backlog.jsonl"]
    store.client.delete("delayq:{damaged}:due")
    assert run(broker, "export", "--output", str(tmp_path / "none" / "x"), code=1).stderr.startswith("Error: ")


@pytest.mark.wide
@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_an_export_that_is_broken_off_leaves_nothing(
    broker: PrivateRedis, store: DelayStore, tmp_path: Path, number: signal.Signals
) -> None:
    """The file of its name stays as it was, without a part beside it; after SIGKILL the next export takes it away."""
    body = json.dumps({"headers": {"task": "t", "argsrepr": "x" * 1000}})
    for at in range(0, 3_000, 500):
        store.delivery.offer("q", *(Offer(f"{n:06}", "+3600000", 0, body) for n in range(at, at + 500)))
    file, part = tmp_path / "backlog.jsonl", tmp_path / "backlog.jsonl.part"
    file.write_text("precious")

    def hear_interrupts() -> None:
        """Undoes what a shell does to processes in the background, which hear no SIGINT."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def is_half_way() -> bool:
        return part.exists() and part.stat().st_size > 0

    def hold(reply: bytes) -> bytes:
        """Lets no reply through once the export has written something."""
        if is_half_way():
            proxy.freeze()
        return reply

    with Proxy(broker.port, on_reply=hold) as proxy:
        args = [BIN / "delayq", "-b", proxy.url, "export", "--yes", "--output", file]
        with subprocess.Popen(args, stderr=subprocess.PIPE, text=True, preexec_fn=hear_interrupts) as process:
            until(is_half_way, what="the export has written something")
            process.send_signal(number)
            _, stderr = process.communicate(timeout=30)
    assert process.returncode not in (0, 2)
    assert file.read_text() == "precious"
    if number != signal.SIGKILL:
        assert (part.exists(), f"stopped; {file} is not written" in stderr) == (False, True)
    run(broker, "export", "--yes", "--output", str(file))
    assert len(file.read_text().splitlines()) == 3_002
    assert os.listdir(tmp_path) == [file.name]


@pytest.mark.wide
def test_a_second_export_leaves_the_file_of_the_first_alone(
    broker: PrivateRedis, store: DelayStore, tmp_path: Path
) -> None:
    """Two at once would mix their lines in one file: the second says so and ends with 1, the first is complete."""
    body = json.dumps({"headers": {"task": "t", "argsrepr": "x" * 1000}})
    store.delivery.offer("q", *(Offer(f"{n:03}", "+3600000", 0, body) for n in range(300)))
    file, part = tmp_path / "backlog.jsonl", tmp_path / "backlog.jsonl.part"
    args = [BIN / "delayq", "-b", broker.url, "export", "--yes", "--output", file]

    def held() -> subprocess.Popen[bytes] | None:
        """Returns a stopped export that has written a part; None if it was through before the signal came."""
        process = subprocess.Popen(args)
        while process.poll() is None and not (part.exists() and part.stat().st_size):
            pass  # without a pause: the export takes no longer than a few
        process.send_signal(signal.SIGSTOP)
        if part.exists():
            return process
        process.send_signal(signal.SIGCONT)
        process.wait(timeout=30)
        return None

    first = until(held, what="an export is stopped in its midst")
    try:
        second = run(broker, "export", "--output", str(file), code=1)
    finally:
        first.send_signal(signal.SIGCONT)
        assert first.wait(timeout=30) == 0
    assert f"{file} is not written: another export writes it" in second.stderr
    assert len(file.read_text().splitlines()) == 302
    assert os.listdir(tmp_path) == [file.name]


@pytest.mark.wide
def test_an_export_to_a_full_disk_gives_the_space_back(broker: PrivateRedis, store: DelayStore, tmp_path: Path) -> None:
    """Where no more can be written, nothing of the file is left, the reason is said, and the exit code is 1."""
    store.delivery.offer("q", *(Offer(f"{n}", "+3600000", 0, "x" * 10_000) for n in range(500)))
    limited = f"ulimit -f 1000; {BIN}/delayq -b {broker.url} export --output {tmp_path}/backlog.jsonl"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, timeout=60)
    assert (done.returncode, os.listdir(tmp_path)) == (1, [])
    assert f"{tmp_path}/backlog.jsonl is not written: [Errno 27] File too large" in done.stderr


def test_a_message_that_is_lost_is_left_out_and_told(broker: PrivateRedis, store: DelayStore) -> None:
    """An index entry without a body is counted on stderr and not among the messages."""
    store.delivery.offer("q", offer("a"), offer("b"))
    store.client.hdel("delayq:{q}:bodies", "a")
    result = run(broker, "export")
    assert json.loads(result.stdout.splitlines()[-1])["messages"] == 1
    assert "not in it: 1 message whose body is lost" in result.stderr


@pytest.mark.wide
@pytest.mark.nightly
def test_100_000_messages_go_through_in_bounded_memory_and_with_a_bar(
    broker: PrivateRedis, store: DelayStore, tmp_path: Path
) -> None:
    """Neither the export nor the import of 100,000 messages takes 15 MB more than that of one, and both show a bar.

    The file has more than 20 MB.
    """
    file, small = tmp_path / "backlog.jsonl", tmp_path / "small.jsonl"
    store.delivery.offer("q", offer("one"))
    base = _measured(broker, "export", "--output", str(small))
    base = max(base, _measured(broker, "import", str(small)))
    for start in range(0, 100_000, 1000):
        store.delivery.offer("q", *(offer(f"t{n}", FUTURE_MS + n // 100, n % 3) for n in range(start, start + 1000)))
    raw_client = store.client
    assert _measured(broker, "export", "--output", str(file)) < base + 15_000
    assert file.stat().st_size > 20_000_000
    before = keys(raw_client)
    order = [each.body for each in by_id.browse(store, "q")]
    raw_client.delete(*before)
    assert _measured(broker, "import", str(file)) < base + 15_000
    assert [each.body for each in by_id.browse(store, "q")] == order
    with terminal(broker, "import", str(file)) as bar:
        assert "importing" in bar.read_until("importing")
        assert bar.wait() == 0
    assert "100,001 were there already" in bar.script


def _measured(broker: PrivateRedis, *args: str) -> int:
    """Runs a command in a process of its own. Returns the most memory it took, in KB."""
    command = [sys.executable, "-c", MEASURED, "--broker", broker.url, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stderr.splitlines()[-1])


def test_a_full_redis_ends_the_import_in_words(own_server: PrivateRedis, tmp_path: Path) -> None:
    """When Redis refuses, the command says up to which line all is imported, and can be repeated when there is room."""
    store = DelayStore(redis.Redis(port=own_server.port), KEYS)
    store.delivery.offer("q", *(offer(f"t{n}", body=message("x", f"t{n}", pad="p" * 5000)) for n in range(1000)))
    file = tmp_path / "backlog.jsonl"
    run(own_server, "export", "--output", str(file))
    store.client.flushall()
    store.client.config_set("maxmemory", int(store.client.info("memory")["used_memory"]) + 2_000_000)
    result = run(own_server, "import", str(file), code=1)
    assert "maxmemory" in result.stderr
    stored = int(result.stderr.partition("the lines up to ")[2].split()[0].replace(",", ""))
    assert store.queues.size("q") == stored - 1
    store.client.config_set("maxmemory", 0)
    run(own_server, "import", str(file))
    assert store.queues.size("q") == 1000


ETA = datetime(2100, 1, 1, tzinfo=UTC)


def store_of(raw_client: redis.Redis, layout: str) -> DelayStore:
    return DelayStore(raw_client, KEYS, options=Options(layout=layout))


def fill(store: DelayStore) -> None:
    """Lets messages of all kinds wait: with priorities, of one due time, of one id, of ids that they do not tell."""
    store.delivery.offer("q", *(offer(f"t{n}", FUTURE_MS + n // 40 * 0.3, n % 10) for n in range(150)))
    store.delivery.offer(
        "twins", *(Offer("t", repr(FUTURE_MS + n % 2), n % 3, message(f"n{n}", "t")) for n in range(7))
    )
    odd = ["", "~", "i~0123456789abcdef", "\x7f", "ü\U0001f600", b"\xff\xc3", "\0\r\n", "n" * 5000]
    for n, each in enumerate(odd):
        text = each if isinstance(each, str) else each.decode(errors="surrogateescape")
        inside = text.replace("\0", "").replace("\r\n", "").replace("\x7f", "\\u007f")
        body = message(f"odd {n}").replace("W1td", inside).encode(errors="surrogateescape")
        store.delivery.offer("ü {q}", Offer(each, repr(FUTURE_MS), n, body))
    for n, made in enumerate(
        (task_message(task_id="old", eta=ETA, conf={"task_protocol": 1}), plain_message({"id": "in the body"}))
    ):
        store.delivery.offer("kinds", Offer(f"kind {n}", repr(FUTURE_MS - n / 7), 5, json.dumps(made)))


def told(found: list[str]) -> list[dict[str, Any]]:
    """Returns the messages of an export."""
    return [{name: each[name] for name in each if name != "due"} for each in map(json.loads, found[1:-1])]


@pytest.mark.parametrize("way", [("hash", "hash"), ("hash", "redisson", "hash"), ("redisson", "hash", "redisson")])
def test_a_backlog_goes_from_one_layout_to_another_and_back(
    broker: PrivateRedis, raw_client: redis.Redis, way: tuple[str, ...]
) -> None:
    """Id, priority, body and order of all messages stay, and Redisson's layout rounds due times up to whole ms."""
    fill(store_of(raw_client, way[0]))
    found = exported_from(broker, way[0])
    expected = told(found)
    for layout in way[1:]:
        raw_client.flushall()
        imported = lines(broker, "-o", f"layout={layout}", "import", stdin="\n".join(found) + "\n")
        assert sum(each["offered"] + each["renamed"] for each in imported) == len(expected)
        kept = {"hash": "delayq:{q}:due", "redisson": "redisson_delay_queue_timeout:{q}"}[layout]
        assert raw_client.zcard(kept) == 150
        if "redisson" in way:
            expected = [{**each, "due_ms": float(math.ceil(each["due_ms"]))} for each in expected]
        found = exported_from(broker, layout)
        assert _sorted(told(found)) == _sorted(expected)
        # Of messages that have become due in one ms, the order is that of delivery before.
        assert [each["body"] for each in told(found)] == [each["body"] for each in expected]
    run(broker, "-o", f"layout={layout}", "cancel", "--yes", "t")
    assert store_of(raw_client, layout).queues.size("twins") == 0, "a duplicate was not found by its id"


def exported_from(broker: PrivateRedis, layout: str) -> list[str]:
    """Returns the lines that an app of a layout exports."""
    return run(broker, "-o", f"layout={layout}", "export").stdout.splitlines()


def _sorted(messages: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in messages)


def test_messages_of_other_clients_are_exported(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """An app of Redisson's layout exports also what Redisson has offered; an app of either layout imports it."""
    stores = {layout: store_of(raw_client, layout) for layout in LAYOUTS}
    stores["redisson"].delivery.offer("q", offer("ours", priority=3))
    theirs = message("theirs", priority=7)
    redisson_layout.offer(stores["redisson"], 5, theirs.encode())
    redisson_layout.offer(stores["redisson"], 6, message("old", "old").encode(), old=True)
    found = exported_from(broker, "redisson")
    assert {(each["id"], each["priority"]) for each in told(found)} == {("ours", 3), ("theirs", 7), ("old", 0)}
    for layout in LAYOUTS:
        raw_client.flushall()
        run(broker, "-o", f"layout={layout}", "import", stdin="\n".join(found))
        assert _sorted(told(exported_from(broker, layout))) == _sorted(told(found))
        assert stores[layout].lookup.get(["q"], ["theirs"])["theirs"][0].layout == layout
