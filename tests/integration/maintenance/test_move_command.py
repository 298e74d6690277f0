"""``delayq move``: the waiting messages of a queue go to another, each once."""

import json
import subprocess
import sys
import time
from base64 import b64decode
from collections import Counter
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis

from celery_ext import browse
from kombu_delayq.message.fields import info_of
from kombu_delayq.store import DelayStore
from kombu_delayq.store.upkeep.moving import Moving
from tests.support.commands.shell import lines, run
from tests.support.examining import look
from tests.support.slots import SLOTS
from tests.support.workers.backlogs import fill
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.both_forms
slots_only = pytest.mark.skipif(not SLOTS, reason="on a plain server a move is one step")

DUE = datetime(2100, 1, 1, tzinfo=UTC)

#: Moves a queue, and waits for a line on stdin before some calls of a script, of which it prints the number.
STEPPED = """
import sys
from celery_ext.cli import delayq
from kombu_delayq.store.client import StoreClient
of_registry, count = StoreClient.evalsha_command, 0
def stepped(self, operation, *args):
    global count
    if operation in ("move_to", "move_ready", "depart", "depart_ready", "arrive"):
        count += 1
        print(count, flush=True)
        sys.stdin.readline()
    return of_registry(self, operation, *args)
StoreClient.evalsha_command = stepped
delayq(sys.argv[1:])
"""


def _killed_before(proj: Proj, call: int, *more: str) -> None:
    """Runs ``delayq move old new``, and kills it before one of its calls of a script."""
    args = [sys.executable, "-c", STEPPED, "-b", proj.server.url]
    if proj.backup == "list":
        args += ["-o", "backup=list"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*args, "move", "old", "new", *more, "--yes"], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout
        assert process.stdin
        for number in range(1, call + 1):
            if process.stdout.readline() != f"{number}\n":
                return  # it had less to do
            if number < call:
                process.stdin.write("\n")
                process.stdin.flush()
        process.kill()


def _form(proj: Proj) -> list[str]:
    return ["-o", "backup=list"] if proj.backup == "list" else []


def test_all_that_waits_moves(proj: Proj) -> None:
    """Messages keep id, due time, priority and arguments; those that name their queue name the other one."""
    for n in range(250):
        proj.send("record", n, eta=f"2100-01-01T00:{n % 60:02}:00+00:00", queue="old", task_id=f"t{n}", priority=n % 10)
    before = [(task.id, task.due, task.priority, task.args) for task in browse(proj.app, "old")]
    assert "--yes" in run(proj.server, *_form(proj), "move", "old", "new", code=2).stderr
    done = run(proj.server, *_form(proj), "move", "old", "new", "--yes")
    assert done.stdout == "queue old: 250 messages moved to queue new\n"
    after = list(browse(proj.app, "new"))
    assert [(task.id, task.due, task.priority, task.args) for task in after] == before
    assert {info_of(task.body)["routing_key"] for task in after} == {"new"}
    assert proj.delayed("old") == 0
    again = lines(proj.server, *_form(proj), "move", "old", "new", "--yes") if proj.delayed("old") else []
    assert again == []
    with proj.connection() as connection:
        store: DelayStore = connection.default_channel.store
        [note] = store.audit.recent()
    assert (note.action, note.count, note.what["queue"], note.what["to"]) == ("move", 250, "old", "new")


def test_ready_messages_move_too(proj: Proj) -> None:
    """With --ready messages that are ready move as well, of all priorities, in their order; a worker runs each once."""
    for n in range(150):
        proj.send("record", n, queue="old", priority=3 * (n % 2))
    proj.send("record", 1000, eta=DUE, queue="old")
    done = run(proj.server, *_form(proj), "move", "old", "new", "--ready", "--yes")
    assert done.stdout == "queue old: 151 messages moved to queue new\n"
    assert proj.server.client().llen("old") == 0
    proj.worker("-Q", "new", concurrency=1)
    runs = [one["value"] for one in proj.await_runs(150)]
    assert sorted(runs) == list(range(150))
    assert [value for value in runs if value % 2 == 0] == list(range(0, 150, 2))


@pytest.mark.parametrize("call", range(1, 7))
def test_ready_messages_move_once_wherever_the_command_is_killed(proj: Proj, call: int) -> None:
    """When it has run once more, each is in the other queue once, in their order."""
    for n in range(150):
        proj.send("record", n, queue="old")
    _killed_before(proj, call, "--ready")
    client = proj.server.client()
    if client.llen("old") or proj.server.slots:  # else nobody knows the queue any more
        run(proj.server, *_form(proj), "move", "old", "new", "--ready", "--yes")
    assert client.llen("old") == 0
    bodies = [json.loads(message)["body"] for message in reversed(client.lrange("new", 0, -1))]
    assert [json.loads(b64decode(body))[0][0] for body in bodies] == list(range(150))


def test_both_forms_of_backup_move(make_proj: MakeProj) -> None:
    """Messages in the other form go to the form of the command, and then move."""
    proj = make_proj()
    other = make_proj(broker_transport_options={"backup": "hash" if proj.backup == "list" else "list"})
    for n in range(5):
        proj.send("record", n, eta=DUE, queue="old")
        other.send("record", 10 + n, eta=DUE, queue="old")
    assert "10 messages moved" in run(proj.server, *_form(proj), "move", "old", "new", "--yes").stdout
    assert sorted(task.args[0] for task in browse(proj.app, "new")) == [*range(5), *range(10, 15)]


@pytest.mark.parametrize("call", range(1, 9))
def test_killed_anywhere_and_called_again(proj: Proj, call: int) -> None:
    """Wherever it is killed, nothing is lost or doubled when it has run once more."""
    fill(proj, "old", ((f"t{n}", DUE) for n in range(900 if proj.backup == "hash" else 300)))
    count = proj.delayed("old")
    _killed_before(proj, call)
    ids = {task.id for task in browse(proj.app, "new")}
    assert len(ids) < count
    assert not ids & {task.id for task in browse(proj.app, "old")}
    run(proj.server, *_form(proj), "move", "old", "new", "--yes")
    assert Counter(task.id for task in browse(proj.app, "new")) == {f"t{n}": 1 for n in range(count)}
    assert proj.delayed("old") == 0


@slots_only
def test_repair_brings_what_a_killed_command_left(proj: Proj) -> None:
    """The doctor names it, a dry run of repair counts it, and repair brings it."""
    fill(proj, "old", ((f"t{n}", DUE) for n in range(20)))
    _killed_before(proj, 2)
    assert (proj.delayed("old"), proj.delayed("new")) == (0, 0)
    with proj.connection() as connection:
        [found] = look("moves", proj.app, connection.default_channel.store)
    assert found.found.startswith("20 messages are on the way")
    assert found.found.endswith("old to new")
    [dry] = lines(proj.server, *_form(proj), "repair", "--dry-run", "--json", code=1)
    assert (dry["queue"], dry["moving"], dry["mended"]) == ("old", 20, False)
    told = run(proj.server, *_form(proj), "repair", "--yes").stdout
    assert "  20 messages on their way to another queue, from a `delayq move` that has not ended: brought" in told
    assert {task.id for task in browse(proj.app, "new")} == {f"t{n}" for n in range(20)}
    with proj.connection() as connection:
        assert look("moves", proj.app, connection.default_channel.store) == []


@slots_only
def test_the_leader_brings_what_a_killed_command_left(proj: Proj) -> None:
    """Nobody calls anything again: the tasks run, each once."""
    due = datetime.fromtimestamp(time.time() + 3, UTC)
    fill(proj, "old", ((f"t{n}", due) for n in range(20)))
    _killed_before(proj, 2)
    assert (proj.delayed("old"), proj.delayed("new")) == (0, 0)
    proj.worker("-Q", "old,new", concurrency=1)
    assert Counter(one["id"] for one in proj.await_runs(20)) == {f"t{n}": 1 for n in range(20)}


def test_while_workers_run(proj: Proj, tmp_path: Path) -> None:
    """Tasks that come due while the queue moves, in commands that are killed, run once each, wherever they are."""
    proj.worker("-Q", "old,new", concurrency=2)
    proj.await_answers()
    began = time.time()
    tasks = ((f"t{n}", datetime.fromtimestamp(began + 3 + 9 * n / 400, UTC)) for n in range(400))
    fill(proj, "old", tasks)
    for call in (2, 3, 2):
        _killed_before(proj, call)
    run(proj.server, *_form(proj), "move", "old", "new", "--yes")
    runs = proj.await_runs(400, timeout_s=90)
    assert Counter(one["id"] for one in runs) == {f"t{n}": 1 for n in range(400)}
    assert proj.delayed("old") == proj.delayed("new") == 0


def test_what_has_moved_is_said_also_if_redis_refuses_the_note(proj: Proj) -> None:
    """The audit cannot be written: the command fails, and says nevertheless how many messages have moved."""
    proj.send("record", 1, eta=DUE, queue="old")
    with proj.connection() as connection:
        store: DelayStore = connection.default_channel.store
        store.client.set(store.keys.audit, "no stream")
    done = run(proj.server, *_form(proj), "move", "old", "new", "--yes", code=1)
    assert done.stdout == "queue old: 1 message moved to queue new\n"
    assert "is not noted in Redis" in done.stderr


def test_a_connection_that_is_lost_half_way(proj: Proj, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how far it is, and its line in the audit that more may have moved; a second call does the rest."""
    fill(proj, "old", ((f"t{n}", DUE) for n in range(300)))
    move_to, calls = Moving.move_to, count()

    def lost(self: Moving, *args: Any) -> list[str]:
        if next(calls) == 1:
            raise redis.exceptions.ConnectionError("Connection closed by server.")
        return move_to(self, *args)

    monkeypatch.setattr(Moving, "move_to", lost)
    assert (
        "moved 100 of 300 messages when it failed"
        in run(proj.server, *_form(proj), "move", "old", "new", "--yes", code=1).stderr
    )
    with proj.connection() as connection:
        store: DelayStore = connection.default_channel.store
        [line] = store.audit.recent()
    assert (line.action, line.count, line.what["answer_lost"]) == ("move", 100, True)
    done = run(proj.server, *_form(proj), "move", "old", "new", "--yes")
    assert done.stdout == "queue old: 200 messages moved to queue new\n"


@pytest.mark.parametrize(
    ("args", "code", "complaint"),
    [
        (["old", "old"], 2, "are the same queue"),
        (["old", ""], 2, "the name NEW is empty"),
        (["nope", "new"], 1, "queue 'nope' holds no delayed messages"),
        (["old"], 2, "Missing argument"),
    ],
)
def test_a_wrong_command_line_is_refused(proj: Proj, args: list[str], code: int, complaint: str) -> None:
    """The exit code and stderr say what is wrong, and nothing moves."""
    proj.send("record", 1, eta=DUE, queue="old")
    assert complaint in run(proj.server, "move", *args, "--yes", code=code).stderr
    assert proj.delayed("old") == 1


@pytest.mark.parametrize("journal", ["far", "all"])
def test_messages_of_the_journal_move(make_proj: MakeProj, tmp_path: Path, journal: str) -> None:
    """Far messages move in the database, near ones in Redis with their rows; their tasks then run in the new queue."""
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    options = {"journal_url": url, "journal": journal, "journal_horizon": 3600, "journal_lead": 600}
    proj = make_proj(broker_transport_options=options)
    for n in range(10):
        proj.send("record", n, countdown=8 if n < 5 else 7200 + n, queue="old", task_id=f"t{n}")
    given = [part for name, value in options.items() for part in ("-o", f"{name}={json.dumps(value)}")]
    done = run(proj.server, *given, *_form(proj), "move", "old", "new", "--yes")
    assert done.stdout == "queue old: 10 messages moved to queue new\n"
    found = {task.id: task for task in browse(proj.app, "new")}
    assert sorted(found) == [f"t{n}" for n in range(10)]
    assert {task.tier for task in found.values()} == {"redis", "journal"}
    assert {info_of(task.body)["routing_key"] for task in found.values()} == {"new"}
    assert list(browse(proj.app, "old")) == []
    proj.worker("-Q", "new", concurrency=1)
    assert sorted(one["id"] for one in proj.await_runs(5)) == [f"t{n}" for n in range(5)]
    assert sorted(task.id for task in browse(proj.app, "new")) == [f"t{n}" for n in range(5, 10)]
