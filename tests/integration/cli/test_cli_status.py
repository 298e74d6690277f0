"""``delayq status``."""

import json
import re
import unittest.mock
from time import time

import pytest
import redis
from click.testing import CliRunner

from celery_ext.cli import delayq
from celery_ext.cli.commands import status
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from tests.support.commands.shell import read_until, run, start_transfer
from tests.support.conditions import DEADLINE_S
from tests.support.store.consuming import ME, OTHER, end_lease, fetch, lives, message
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, keys_at, waiting
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.held import CONSUMERS, KEYS


def test_status_counts_delayed_ready_and_overdue(proj: Proj) -> None:
    """`delayq status --json` gives each queue's numbers; nobody transfers, so what is due is overdue."""
    proj.send("record", countdown=3600, queue="late", task_id="due")
    proj.send("record", countdown=3600, queue="late")
    proj.send("record", queue="late")
    due_ms = (time() - 100) * 1000
    assert proj.server.client().zadd("delayq:{late}:due", {"due": due_ms}, xx=True, ch=True) == 1
    report = json.loads(run(proj.server, "status", "--json").stdout)
    [queue] = report["queues"]
    assert (report["broker"], report["leader"]) == (proj.server.url, None)
    assert (queue["queue"], queue["delayed"], queue["ready"], queue["overdue"]) == ("late", 2, 1, 1)
    assert 99 < queue["overdue_by_s"] < 100 + DEADLINE_S
    assert queue["next_due_in_s"] == pytest.approx(-queue["overdue_by_s"])


def test_status_in_plain_text_names_queues_and_says_that_nobody_leads(proj: Proj) -> None:
    """`delayq status` prints a table, and says in words that no transfer worker runs."""
    proj.send("record", countdown=7200, queue="orders")
    result = run(proj.server, "status")
    assert "no transfer worker runs" in result.stdout
    row = next(line for line in result.stdout.splitlines() if line.startswith("orders"))
    assert row.split()[1:3] == ["1", "0"]
    assert "(in 2h)" in row or "(in 1h 59m)" in row


def test_status_shows_a_queue_of_which_nothing_was_delayed(proj: Proj) -> None:
    """A queue with ready messages alone, which no app of the command declares, is there, and that nobody consumes it.

    Also when it is named, and once it is empty.
    """
    proj.send("record", queue="mails")
    [row] = json.loads(run(proj.server, "status", "--json").stdout)["queues"]
    assert (row["queue"], row["delayed"], row["ready"], row["no_consumer"]) == ("mails", 0, 1, True)
    proj.server.client().delete("mails")
    [row] = json.loads(run(proj.server, "status", "mails", "--json").stdout)["queues"]
    assert (row["queue"], row["ready"], row["no_consumer"]) == ("mails", 0, False)


def test_queues_in_trouble_come_first(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """Overdue ones, those that nobody consumes, and paused ones; the others are sorted by name, as all are in JSON."""
    store = DelayStore(raw_client, KEYS)
    for name, due_ms in (("a", FUTURE_MS), ("b", FUTURE_MS), ("late", PAST_MS), ("paused", FUTURE_MS)):
        store.delivery.offer(name, waiting("i", due_ms))
    store.fetching.pause("paused")
    store.queues.know("idle")
    raw_client.lpush("idle", "message")
    lines = run(broker, "status").stdout.splitlines()
    begun = next(at for at, line in enumerate(lines) if line.startswith("QUEUE"))
    assert [line.split()[0] for line in lines[begun + 1 : begun + 6]] == ["late", "idle", "paused", "a", "b"]
    names = [row["queue"] for row in json.loads(run(broker, "status", "--json").stdout)["queues"]]
    assert names == sorted(names)


def test_status_of_an_empty_broker_says_so(make_proj: MakeProj) -> None:
    """Without delayed messages there is no table, and no error."""
    assert "no queue holds or held" in run(make_proj().server, "status").stdout


def test_a_damaged_queue_hides_no_other(proj: Proj) -> None:
    """A key of another type is named beside the numbers of the sound queues, and the exit code is 1."""
    proj.send("record", countdown=3600, queue="sound")
    proj.send("record", countdown=3600, queue="damaged")
    proj.server.client().set("delayq:{damaged}:due", "x")
    result = run(proj.server, "status", code=1)
    assert any(line.startswith("sound ") for line in result.stdout.splitlines())
    assert "key delayq:{damaged}:due holds a string" in result.stdout
    rows = json.loads(run(proj.server, "status", "--json", code=1).stdout)["queues"]
    assert [("error" in row, row["queue"]) for row in rows] == [(True, "damaged"), (False, "sound")]


@pytest.fixture
def infinite(proj: Proj) -> PrivateRedis:
    """A broker with the entries of two queues damaged: their scores are infinite."""
    for queue, due in (("past", "-inf"), ("never", "inf")):
        proj.send("record", countdown=3600, queue=queue, task_id=queue)
        assert proj.server.client().zadd(f"delayq:{{{queue}}}:due", {queue: due}, xx=True, ch=True) == 1
    return proj.server


def test_an_infinite_due_time_hides_no_queue(infinite: PrivateRedis) -> None:
    """It is a word in the table, and null in the JSON."""
    assert re.search(r"^past .* 1 by an endless time$", run(infinite, "status").stdout, re.M)
    rows = json.loads(run(infinite, "status", "--json").stdout, parse_constant=pytest.fail)["queues"]
    found = [(row["queue"], row["next_due_in_s"], row["overdue"], row["overdue_by_s"]) for row in rows]
    assert found == [("never", None, 0, 0.0), ("past", None, 1, None)]


def test_entries_with_infinite_due_times_are_listed_and_changed(infinite: PrivateRedis) -> None:
    """They wait as others do, until somebody gives them another time."""
    lines = run(infinite, "list", "--json").stdout.splitlines()
    found = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert {row["id"]: (row["due"], row["due_in_s"]) for row in found} == {"past": (None, None), "never": (None, None)}
    assert run(infinite, "reschedule", "-q", "never", "-q", "past", "--eta", "2099-01-01T00:00Z", "-y")
    dues = [json.loads(line)["due"] for line in run(infinite, "list", "--json").stdout.splitlines()]
    assert dues == ["2099-01-01T00:00:00+00:00"] * 2


def test_an_export_tells_of_infinite_due_times(infinite: PrivateRedis) -> None:
    """It leaves them out, as no import takes them, and ends with 1."""
    done = run(infinite, "export", code=1)
    assert [json.loads(line).get("messages") for line in done.stdout.splitlines()] == [None, 0]
    assert "not in it: 2 messages whose due time is infinite" in done.stderr


@pytest.mark.wide
def test_status_as_a_celery_command_shows_the_queues_of_the_app(proj: Proj) -> None:
    """`celery -A proj delayq status` needs no broker, and lists the app's queues too."""
    proj.conf["task_default_queue"] = "mine"
    assert any(line.startswith("mine ") for line in proj.celery("delayq", "status").splitlines())


@pytest.mark.wide
def test_status_and_transfer_tell_of_messages_under_other_key_prefixes(make_proj: MakeProj) -> None:
    """What a command without the prefix does not see is counted, with how to reach it; what is empty is not."""
    for prefix, count in (("shop.", 2), ("empty.", 0), ("*[a", 3)):
        proj = make_proj(broker_transport_options={"global_keyprefix": prefix})
        for n in range(max(count, 1)):
            proj.send("record", countdown=3600, task_id=f"{n}")
        if not count:
            assert proj.app.control.purge() == 1
    server = proj.server
    server.client().set("odd.{delayq}:queues", "a key of another kind")
    report = json.loads(run(server, "status", "--json").stdout)
    assert (report["queues"], report["other_prefixes"]) == ([], {"*[a": 3, "shop.": 2})
    assert json.loads(run(server, "-o", "global_keyprefix=shop.", "status", "--json").stdout) == {
        **report,
        "cluster": report["cluster"] and unittest.mock.ANY,
        "global_keyprefix": "shop.",
        "queues": unittest.mock.ANY,
        "other_prefixes": {"*[a": 3},
    }
    text = run(server, "status").stdout
    assert "3 with global_keyprefix '*[a', 2 with global_keyprefix 'shop.'" in text
    assert "give -o global_keyprefix=*[a, or run it as `celery -A app delayq" in text
    with start_transfer(server.url) as process:
        read_until(process, "2 with global_keyprefix 'shop.'")


def test_a_large_database_is_not_searched_for_other_prefixes(
    own_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among 200,000 keys of others status looks at some thousand at most, beside its look for bindings."""
    monkeypatch.setattr(status, "LONG_LOOK_S", 0.0)
    client = own_server.client()
    for begin in range(0, 200_000, 10_000):  # a longer script would keep a busy server from answering
        client.eval("for n = 1, 10000 do redis.call('SET', ARGV[1] .. n, 'x') end", 0, f"celery-task-meta-{begin}-")
    client.config_resetstat()
    run(own_server, "status")
    assert client.info("commandstats")["cmdstat_scan"]["calls"] == 10 + 1


def test_status_lists_consumers(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """Each consumer is there with its place, its queues, what it holds and its lease, and what nobody gives back."""
    store = DelayStore(raw_client, KEYS)
    gone = "gone:3:00000000"
    lives(store, ME, gone, queues=("q", "ü"))
    lives(store, OTHER, queues=("other",))
    for queue in ("q", "other"):
        raw_client.lpush(queue, *(json.dumps(message(n)) for n in range(4)))
    for count, queue, name in ((1, "q", ME), (2, "other", OTHER), (3, "q", gone)):
        assert len(fetch(store, count, queue, name=name)) == count
    raw_client.zadd("unacked_index", {"of stock": 1})
    end_lease(store, OTHER)
    for queue in ("q", "ü"):
        store.consumers.leave([gone], queue)
    report = json.loads(run(broker, "status", "--json").stdout)
    other, me = report["consumers"]
    assert 10 < me.pop("lease_left_s") <= 60
    assert me == {"consumer": ME, "host": "host", "pid": "1", "queues": ["q", "ü"], "in_hand": 1, "reclaimed": False}
    assert (other["consumer"], other["in_hand"], other["lease_left_s"], other["reclaimed"]) == (OTHER, 2, 0, True)
    assert (report["in_hand_of_stock"], report["in_hand_of_nobody"], report["consumers_error"]) == (1, 3, None)
    text = run(broker, "status").stdout
    rows = [line.split() for line in text.splitlines() if line.startswith("host ")]
    assert rows[0] == ["host", "2", "2", "ended:", "these", "go", "back", "other"]
    assert (rows[1][:3], rows[1][-3:]) == (["host", "1", "1"], ["left", "q,", "ü"])
    assert "1 message is in the hands of consumers on the stock transport" in text
    assert "3 messages are in the hands of consumers that nobody knows: `delayq repair` gives them back" in text
    raw_client.lpush("other", "{}")
    of_queue = json.loads(run(broker, "status", "--json", "other").stdout)
    assert [row["consumer"] for row in of_queue["consumers"]] == [OTHER]


def test_leases_of_another_type_hide_no_queue(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """Where somebody else's key is in the place of the leases, the queues are listed, and the exit code is 1."""
    DelayStore(raw_client, KEYS).consumers.note_queues(["q"])
    raw_client.set(CONSUMERS, "x")
    raw_client.sadd("{delayq}:queues", "q")
    report = json.loads(run(broker, "status", "--json", code=1).stdout)
    assert ([row["queue"] for row in report["queues"]], report["consumers"]) == (["q"], [])
    assert "WRONGTYPE" in report["consumers_error"]
    assert "consumers are not listed: " in run(broker, "status", code=1).stdout


def test_status_without_the_rights_for_consumers_shows_the_queues(own_server: PrivateRedis) -> None:
    """A user of an ACL who may not look at consumers sees the rest, is told so, and gets the exit code 0."""
    with own_server.client() as client:
        keys = ["delayq:*", "{delayq}:*", "q*", "{q}*"]
        client.acl_setuser("small", True, nopass=True, keys=keys, categories=["+@all"], commands=["-zscan"])
        client.sadd("{delayq}:queues", "q")
        DelayStore(client, KEYS).consumers.note_queues(["q"])
    url = f"redis://small:x@127.0.0.1:{own_server.port}/0"
    done = CliRunner().invoke(delayq, ["--broker", url, "status"])
    assert done.exit_code == 0, done.output
    assert "consumers are not listed: " in done.stdout
    assert "\nq " in done.stdout


@pytest.mark.parametrize("slots", [False, True])
def test_a_queue_that_only_has_ready_messages_is_shown(slots: bool) -> None:
    """Messages of stock publishers count though nobody has registered the queue; one without any is not known."""
    with PrivateRedis(slots=slots) as server, redis.Redis(port=server.port) as client:
        client.lpush(keys_at(server)().ready("q", [0, 3])[1], "{}")
        done = CliRunner().invoke(delayq, ["--broker", server.url, "status", "--json", "q"])
        assert done.exit_code == 0, done.output
        [row] = json.loads(done.stdout)["queues"]
        assert (row["queue"], row["delayed"], row["ready"]) == ("q", 0, 1)
        assert CliRunner().invoke(delayq, ["--broker", server.url, "status", "other"]).exit_code == 1


@pytest.mark.journey
def test_status_lists_the_consumer_of_a_worker(make_proj: MakeProj) -> None:
    """A worker is listed with its process and its queues, and no more once it has stopped."""
    proj = make_proj(include=["stock_tasks"])
    worker = proj.worker("-Q", "a,b", pool="threads")
    proj.send("gated_late", "gate", queue="b")
    proj.await_runs(1)
    [row] = json.loads(proj.celery("delayq", "status", "--json"))["consumers"]
    assert (row["pid"], row["queues"], row["in_hand"]) == (str(worker.process.pid), ["a", "b"], 1)
    proj.journal.set("gate", 1)
    worker.stop()
    assert json.loads(proj.celery("delayq", "status", "--json"))["consumers"] == []


@pytest.mark.wide
def test_status_says_that_the_app_itself_uses_stock_redis(make_proj: MakeProj) -> None:
    """A forgotten broker_transport is said, also one that kombu drops for a URL; an app of ours hears nothing."""
    server = make_proj().server
    for conf in ({"broker_transport": None}, {"broker_url": f"redis+socket://{server.socket_path}"}):
        proj = make_proj(**conf)
        assert "uses the stock transport 'redis' itself" in proj.celery("delayq", "status")
    assert json.loads(proj.celery("delayq", "status", "--json"))["stock_transport"] == "redis"
    for conf in ({}, {"broker_transport": None, "broker_url": f"delayq://127.0.0.1:{server.port}/0"}):
        proj = make_proj(**conf)
        assert json.loads(proj.celery("delayq", "status", "--json"))["stock_transport"] is None
    assert "stock" not in proj.celery("delayq", "status")
