"""``delayq journal``, and the journal in ``delayq status`` and ``delayq list``."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import JournaledStore, database
from celery_ext.journal.recovery import Restored, restore
from kombu_delayq.message.due import iso_of
from tests.support.commands.shell import BIN, Audit, read_until, run
from tests.support.conditions import until
from tests.support.journal.stores import (
    DAY_MS,
    HOUR_MS,
    Promoter,
    addition,
    in_redis,
    journaled_store,
    make_journaled,
    offer,
)
from tests.support.store.keyspace import clock_ms

__all__ = ["journaled_store", "make_journaled"]

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)

#: Runs a command with the journal.
Delayq = Callable[..., Any]


@pytest.fixture
def delayq(redis_server: PrivateRedis, journal_url: str) -> Delayq:
    return lambda *args, code=0: run(redis_server, "--journal-url", journal_url, *args, code=code)


@pytest.fixture
def store(journaled_store: JournaledStore) -> JournaledStore:
    """A message in Redis and in the journal, one in the journal alone, and a promoter that has promoted."""
    now_ms = clock_ms(journaled_store.client)
    journaled_store.delivery.offer("q", offer("near", now_ms + 2 * HOUR_MS), offer("far", now_ms + 9 * DAY_MS))
    Promoter(journaled_store).heartbeat().heartbeat()
    journaled_store.client.set("{delayq}:journal:lease", "host:1:promoter")
    return journaled_store


Noted = Callable[[], list[tuple[str, int, Any]]]


@pytest.fixture
def noted(audit: Audit) -> Noted:
    """Lists the action, the count and the outcomes of each line of the audit, the latest first."""
    return lambda: [(line["action"], line["count"], line["what"]["outcomes"]) for line in audit()]


def lose(store: JournaledStore) -> None:
    """Lets Redis lose its data, and a promoter notice it."""
    store.client.flushall()
    Promoter(store).heartbeat()


def test_show_says_which_tier_has_a_message(store: JournaledStore, delayq: Delayq) -> None:
    """`show` says it of what waits in the journal, and `--json` of each."""
    shown = [json.loads(row) for row in delayq("show", "--json", "near", "far").stdout.splitlines()]
    assert {row["id"]: row["tier"] for row in shown} == {"near": "redis", "far": "journal"}
    assert "waits in   the journal" in delayq("show", "far").stdout
    assert "waits in" not in delayq("show", "near").stdout


def test_list_says_which_tier_has_each(store: JournaledStore, delayq: Delayq) -> None:
    """Where one of the listed messages waits in the journal, a column says who has each; otherwise there is none."""
    head, *rows = delayq("list", "q").stdout.splitlines()
    column = head.index("TIER")
    found = [(next(name for name in ("near", "far") if f" {name} " in row), row[column:].split()[0]) for row in rows]
    assert found == [("near", "redis"), ("far", "journal")]
    assert "TIER" not in delayq("list", "--due-to", "1d", "q").stdout


def test_status_shows_both_tiers(store: JournaledStore, delayq: Delayq) -> None:
    """`status` counts over both, and says how many wait in the journal, who promotes, and when the next is promoted."""
    text = delayq("status").stdout
    assert re.search(r"^journal +sqlite:\S+: 1 message waits there alone, 1 row of others, \d+ kB$", text, re.M)
    assert re.search(r"^promotes host:1:promoter, next at .* \(in 8d 23h", text, re.M)
    assert re.search(r"^q +2 +1 +0 +0 ", text, re.M)
    report = json.loads(delayq("status", "--json").stdout)
    found = report["journal"]
    assert (found["waiting"], found["offered"], found["lag_s"], found["lost"]) == (1, 1, 0.0, [])
    assert 0 <= found["watermark_age_s"] < 60
    assert report["queues"][0]["in_journal"] == 1
    assert found["promoter"] == "host:1:promoter"


def test_a_loss_is_told_loudly_until_it_is_restored(store: JournaledStore, delayq: Delayq) -> None:
    """`status` and `journal check` report that Redis has lost its data, until `restore` has filled it."""
    assert "all there" in delayq("journal", "check").stdout
    store.client.flushall()
    assert "no promoter has noted it yet" in delayq("status").stdout
    Promoter(store).heartbeat()
    assert "Redis lost data, noticed at" in delayq("status").stdout
    checked = delayq("journal", "check", code=1)
    assert ("to restore" in checked.stderr, checked.stdout) == (True, "")
    assert "give --yes" in delayq("journal", "restore", code=2).stderr
    assert "1 would wait again" in delayq("journal", "restore", "--dry-run").stdout
    done = delayq("journal", "restore", "--yes", "--json")
    assert json.loads(done.stdout)["restored"] == 1
    assert "nobody promotes" in done.stderr
    assert "lost" not in delayq("status").stdout
    assert delayq("journal", "restore", "--yes").stdout == "nothing is to be restored\n"


def test_a_restore_that_fails_half_way_is_noted(
    store: JournaledStore, delayq: Delayq, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits again by then is in the audit; a dry run, which changes nothing, is not."""
    lose(store)

    def fails(*args: Any, **options: Any) -> Iterator[Restored]:
        yield from restore(*args, **options)
        raise RedisConnectionError("gone")

    monkeypatch.setattr("celery_ext.journal.recovery.restore", fails)
    delayq("journal", "restore", "--dry-run", code=1)
    assert noted() == []
    delayq("journal", "restore", "--yes", code=1)
    assert [(action, count) for action, count, _ in noted()] == [("journal restore", 1)]


def test_check_names_what_is_missing(store: JournaledStore, delayq: Delayq) -> None:
    """A message that somebody deleted in Redis is missing, with exit code 1."""
    store.client.delete("delayq:{q}:due", "delayq:{q}:bodies")
    assert "queue q: 1 message compared, 1 missing in Redis, such as near" in delayq("journal", "check", code=1).stdout
    [found] = delayq("journal", "check", "--json", code=1).stdout.splitlines()
    assert json.loads(found)["missing_ids"] == ["near"]


@pytest.mark.parametrize("lost", [("delayq:{q}:due", "delayq:{q}:bodies"), ()], ids=["a part", "all"])
def test_restore_looks_for_itself(store: JournaledStore, delayq: Delayq, lost: tuple[str, ...]) -> None:
    """What a check finds missing comes back, and what a Redis had that is empty, before any promoter has noted it."""
    for key in lost or store.client.keys("*"):
        store.client.delete(key)
    delayq("journal", "check", code=1)
    assert "1 would wait again" in delayq("journal", "restore", "--dry-run", "--due-from", "1h").stdout
    assert delayq("journal", "restore", "--dry-run", "--due-from", "3h").stdout == "nothing is to be restored\n"
    assert json.loads(delayq("journal", "restore", "--yes", "--json").stdout)["restored"] == 1
    assert [row.id for row in store.journal.browse("q")] == ["near", "far"]
    assert delayq("journal", "restore", "--yes").stdout == "nothing is to be restored\n"


@pytest.fixture
def unnoted(journaled_store: JournaledStore) -> JournaledStore:
    """A loss that no promoter has noted: of two messages of each of two queues, one has come due since."""
    store = journaled_store
    Promoter(store).heartbeat().heartbeat()
    due_ms = clock_ms(store.client) + 1
    for queue, at in (("near", due_ms), ("far", due_ms + HOUR_MS)):
        store.delivery.offer(queue, offer(f"{queue} 1", due_ms), offer(f"{queue} 2", at + HOUR_MS / 2))
    store.client.flushall()
    until(lambda: clock_ms(store.client) > due_ms)
    return store


@pytest.mark.parametrize(
    ("narrow", "counts"),
    [
        ((), (4, 4, 0, 0)),
        (("--queue", "near"), (2, 2, 0, 0)),
        (("--due-from", "1h"), (1, 1, 0, 0)),
        (("--overdue", "skip"), (4, 2, 2, 0)),
        (("--overdue", "dead-letter", "--queue", "far"), (2, 1, 0, 1)),
    ],
)
def test_a_dry_run_says_what_a_restore_does(
    unnoted: JournaledStore, delayq: Delayq, narrow: tuple[str, ...], counts: tuple[int, ...]
) -> None:
    """Also before any promoter has noted the loss: with what came due meanwhile, and for the same options."""
    would, done = (
        json.loads(delayq("journal", "restore", "--json", how, *narrow).stdout) for how in ("--dry-run", "--yes")
    )
    assert (would.pop("dry_run"), done.pop("dry_run")) == (True, False)
    assert would == done
    assert tuple(done[name] for name in ("looked", "restored", "skipped", "dead_letters")) == counts


def test_a_dry_run_leaves_alone_what_was_published_since(unnoted: JournaledStore, delayq: Delayq) -> None:
    """What Redis was given after a loss is not counted, and nothing is noted."""
    unnoted.delivery.offer("near", offer("new", clock_ms(unnoted.client) + HOUR_MS))
    assert delayq("journal", "restore", "--dry-run").stdout.startswith("4 messages looked at: 4 would wait again\n")
    assert delayq("journal", "restore", "--dry-run", "--queue", "other").stdout == "nothing is to be restored\n"
    assert unnoted.journal.unrestored() == []


def test_a_restore_says_how_many_may_run_twice(unnoted: JournaledStore, delayq: Delayq) -> None:
    """Those due since the latest watermark, and before the loss was noticed, however long that is."""
    unnoted.journal.set_watermarks(clock_ms(unnoted.client) - HOUR_MS, {})
    gone = addition("delivered", clock_ms(unnoted.client) - HOUR_MS / 2)
    unnoted.journal.add([gone], offered=True)
    line = r"^3 of these may have run: they were due from \S+ \S+ \S+ \(30m \d+s ago\) on, before the loss was noticed$"
    for how in ("--dry-run", "--yes"):
        assert re.search(line, delayq("journal", "restore", how).stdout, re.M)
        found = json.loads(delayq("journal", "restore", "--dry-run", "--json").stdout)
        assert (found["unsure"], found["unsure_from"]) == (
            (3, iso_of(gone.due_ms)) if how == "--dry-run" else (0, None)
        )


@pytest.mark.usefixtures("unnoted")
def test_the_question_of_a_restore_counts_what_is_selected(delayq: Delayq) -> None:
    """It has the number of the messages that the options let through."""
    for narrow, messages in (("--queue=far", "2 messages"), ("--due-from=1h", "1 message")):
        assert f"Restore about {messages} for " in delayq("journal", "restore", narrow, code=2).stderr


def test_a_database_that_is_away(
    store: JournaledStore, redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`status` shows what Redis has and says that the rest is not known; others end with a line of words."""
    monkeypatch.setattr(database, "AWAY_S", 0.0)  # each command would wait 2 s for it to come back
    away = ("--journal-url", "postgresql+psycopg://user:secret@127.0.0.1:1/db")
    found = run(redis_server, *away, "status", code=1)
    assert "postgresql+psycopg://user:***@127.0.0.1:1/db DOES NOT ANSWER" in found.stdout
    assert re.search(r"^q +1 +\? +0 ", found.stdout, re.M)
    report = json.loads(run(redis_server, *away, "status", "--json", code=1).stdout)
    assert report["queues"][0]["in_journal"] is None
    for command in (("show", "near"), ("list",), ("list", "q"), ("journal", "check")):
        said = run(redis_server, *away, *command, code=1).stderr
        assert said.startswith("Error: the database of the journal: ")
        assert "secret" not in said
        assert said.count("\n") == 1


def test_no_journal_and_the_wrong_one(store: JournaledStore, redis_server: PrivateRedis, tmp_path: Any) -> None:
    """A command says how to name the journal, and refuses a Redis that belongs to another."""
    assert "there is no journal: set the transport option" in run(redis_server, "journal", "check", code=1).stderr
    other = ("--journal-url", f"sqlite:///{tmp_path}/other.db")
    for command in (("check",), ("restore", "--yes")):
        said = run(redis_server, *other, "journal", *command, code=1).stderr
        assert "belongs to another journal than sqlite:///" in said


@pytest.mark.journey
def test_a_process_that_promotes(journaled_store: JournaledStore, redis_server: PrivateRedis, journal_url: str) -> None:
    """`transfer` promotes what is due soon, and stops with exit code 0 and without the lease."""
    store = journaled_store
    store.journal.add([addition("soon", clock_ms(store.client) + 60_000)])
    environment = {**os.environ, "DELAYQ_JOURNAL_URL": journal_url}
    args = [BIN / "delayq", "-b", redis_server.url, "transfer"]
    process = subprocess.Popen(args, stderr=subprocess.PIPE, text=True, env=environment)
    until(lambda: in_redis(store) == ["soon"])
    read_until(process, "promotes")
    assert store.promotion.promoter() is None
