"""The options ``--task``, ``--queue``, ``--due-from``, ``--due-to`` and ``--arg``, and ``delayq count``."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands.shell import Audit, lines, run
from tests.support.workers.backlogs import fill
from tests.support.workers.harness import Proj

pytestmark = pytest.mark.both_layouts

DUE = datetime(2100, 1, 1, tzinfo=UTC)

#: Acts on a queue, and tells on stdout how many messages it has changed, after each call that changes some.
SLOW = """
import sys, time
from celery_ext.cli import delayq
from celery_ext.waiting.bulk import Bulk
act_on = Bulk._act_on
def slow(self, *args):
    act_on(self, *args)
    if self.done:
        print(self.done, flush=True)
        sys.stdin.readline()
Bulk._act_on = slow
delayq(sys.argv[1:])
"""


@pytest.fixture
def shop(proj: Proj) -> Proj:
    """Twelve tasks of three queues, six of each user."""
    for n in range(12):
        options = {"countdown": 3600 + 600 * n, "queue": f"q{n % 3}", "task_id": f"t{n:02}"}
        proj.send("record", n, **options, kwargs={"user": {"id": n % 2}})
    return proj


def _ids(proj: Proj, *args: str) -> list[str]:
    return [line["id"] for line in lines(proj.server, "list", *args, "--limit", "0")]


@contextmanager
def slow_cancel(proj: Proj, audit_log: Path) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Starts to cancel 3,000 tasks, which waits for a line of input after each call that has changed some.

    Yields the process after its first call, and how many tasks it has cancelled.
    """
    fill(proj, "q", ((f"t{n}", DUE) for n in range(3000)))
    args = [
        sys.executable,
        "-c",
        SLOW,
        "-b",
        proj.server.url,
        "--audit-log",
        str(audit_log),
        "cancel",
        "-q",
        "q",
        "--yes",
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(args, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout
        yield process, int(process.stdout.readline())


def _notes(path: Path) -> list[dict[str, Any]]:
    """Returns the lines of the audit in the file that ``--audit-log`` names."""
    return [json.loads(line.partition("audit: ")[2]) for line in path.read_text().splitlines()]


def test_list_count_and_export_select(shop: Proj, tmp_path: Path) -> None:
    """The same options select the same messages in each command."""
    odd = [f"t{n:02}" for n in (1, 3, 5, 7, 9, 11)]
    assert _ids(shop, "--arg", "kwargs.user.id=1") == odd
    assert _ids(shop, "--arg", "kwargs.user.id=1", "--arg", "0=5") == ["t05"]
    assert _ids(shop, "--task", "proj.*", "-q", "q1") == ["t01", "t04", "t07", "t10"]
    assert _ids(shop, "--task", "shop.*") == []
    assert _ids(shop, "--due-to", "75m") == ["t00", "t01"]
    assert _ids(shop, "--due-from", "165m") == ["t11"]
    found = run(shop.server, "list", "--arg", "kwargs.user.id=1", "--limit", "2").stdout.splitlines()
    assert len(found) == 4
    assert found[-1] == "… and more"
    assert run(shop.server, "list", "--task", "x").stdout == "no delayed messages are selected\n"

    assert lines(shop.server, "count") == [{"queue": f"q{n}", "count": 4} for n in range(3)]
    assert lines(shop.server, "count", "q1", "--arg", "kwargs.user.id=1") == [{"queue": "q1", "count": 2}]
    assert lines(shop.server, "count", "--due-to", "75m") == [{"queue": "q0", "count": 1}, {"queue": "q1", "count": 1}]
    table = run(shop.server, "count", "--task", "proj.record").stdout.splitlines()
    assert [row.split() for row in table] == [
        ["QUEUE", "COUNT"],
        ["q0", "4"],
        ["q1", "4"],
        ["q2", "4"],
        ["total", "12"],
    ]
    assert run(shop.server, "count", "nope", code=1).stderr.startswith("queue 'nope' holds no")

    out = tmp_path / "odd.jsonl"
    run(shop.server, "export", "--output", str(out), "--arg", "kwargs.user.id=1")
    _, *rows, closing = map(json.loads, out.read_text().splitlines())
    assert sorted(row["id"] for row in rows) == odd
    assert closing["messages"] == 6


def test_cancel_counts_asks_and_says_what_became_of_them(shop: Proj, audit: Audit) -> None:
    """Without a yes nothing is done, and the question has the number and the conditions; with one, these tasks go."""
    refused = run(shop.server, "cancel", "--arg", "kwargs.user.id=1", "-q", "q1", code=2)
    assert "Cancel 2 tasks (queue q1, kwargs.user.id=1) on " in refused.stderr
    assert len(_ids(shop)) == 12
    done = run(shop.server, "cancel", "--arg", "kwargs.user.id=1", "-q", "q1", "--yes")
    assert done.stdout == "2 cancelled\n"
    assert "results stay as they are" in done.stderr
    assert _ids(shop, "q1") == ["t04", "t10"]
    assert run(shop.server, "cancel", "--arg", "kwargs.user.id=1", "-q", "q1", "--yes", code=1).stderr == (
        "no waiting task is selected\n"
    )
    assert lines(shop.server, "cancel", "--task", "proj.*", "--yes") == [
        {"selected": 10, "ended": True, "outcomes": {"cancelled": 10}}
    ]
    assert _ids(shop) == []
    assert [(line["action"], line["count"]) for line in audit()] == [("bulk cancel", 10), ("bulk cancel", 2)]


def test_reschedule_what_is_selected(shop: Proj, audit: Audit) -> None:
    """All selected tasks get the new time; a past time sends them to their queues."""
    done = run(shop.server, "reschedule", "-q", "q2", "--countdown", "10h", "--yes")
    assert done.stdout == "4 rescheduled\n"
    assert _ids(shop, "--due-from", "9h") == ["t02", "t05", "t08", "t11"]
    done = run(shop.server, "reschedule", "--due-from", "9h", "--eta", "2020-01-01", "--yes")
    assert done.stdout == "4 due already, sent to be run\n"
    assert [(line["action"], line["count"]) for line in audit()] == [("bulk reschedule", 4), ("bulk reschedule", 4)]


def test_lines_of_the_audit_go_to_a_file(shop: Proj, tmp_path: Path) -> None:
    """`--audit-log` appends a line for each change, and none for what changes nothing."""
    path = tmp_path / "audit.log"
    for args in (
        ["cancel", "--yes", "t00"],
        ["count"],
        ["run-now", "--arg", "0=3", "--yes"],
        ["queues", "purge", "q1", "--yes"],
    ):
        run(shop.server, "--audit-log", str(path), *args)
    noted = [json.loads(line.partition("audit: ")[2]) for line in path.read_text().splitlines()]
    assert [(line["action"], line["count"]) for line in noted] == [("cancel", 1), ("bulk run_now", 1), ("purge", 4)]
    assert noted[0]["what"] == {"ids": ["t00"], "outcomes": {"cancelled": 1}}
    assert "cannot be written" in run(shop.server, "--audit-log", str(tmp_path / "no" / "x"), "count", code=1).stderr


#: Wrong command lines, each with what the error says.
WRONG = [
    (["cancel"], "which tasks?"),
    (["run-now", "t00", "--task", "x"], "give either ids, or"),
    (["cancel", "t00", "-q", "q0"], "give either ids, or"),
    (["cancel", "--arg", "user=1"], "the path 'user' begins neither"),
    (["list", "--arg", "0"], "'0' is not PATH=VALUE"),
    (["count", "--due-from", "2h", "--due-to", "1h"], "the range is empty"),
]


def test_a_wrong_command_line_is_refused(shop: Proj) -> None:
    """Exit code 2, words that say why, and nothing is changed."""
    for args, complaint in WRONG:
        assert complaint in run(shop.server, *args, code=2).stderr
    assert len(_ids(shop)) == 12


def test_tasks_that_cannot_be_looked_into_are_named(shop: Proj) -> None:
    """A pickle is never loaded: its task is left out, and stderr says so."""
    shop.app.conf.accept_content = ["json", "pickle"]
    shop.send("record", 3, countdown=3600, task_id="p", serializer="pickle", queue="q0")
    words = "1 task is left out: arguments that cannot be read, such as those in a pickle"
    for args in (["list"], ["count"], ["export"], ["cancel", "--yes"]):
        assert words in run(shop.server, *args, "--arg", "0=3").stderr
    assert "p" in _ids(shop)


@pytest.mark.wide
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_stopped_says_how_far_it_went_and_goes_on(proj: Proj, tmp_path: Path, number: int) -> None:
    """A signal ends it after the call that is under way; it says what is gone, and a second call does the rest."""
    log = tmp_path / "audit.log"
    with slow_cancel(proj, log) as (process, done):
        process.send_signal(number)
        out, err = process.communicate("\n", timeout=60)
    assert process.returncode == 1
    assert out.splitlines()[-1] == f"{done:,} cancelled"
    assert f"stopped after {done:,} of 3,000" in err
    assert proj.delayed("q") == 3000 - done
    again = run(proj.server, "--audit-log", str(log), "cancel", "-q", "q", "--yes")
    assert again.stdout == f"{3000 - done:,} cancelled\n"
    assert [line["count"] for line in _notes(log)] == [0, done, 0, 3000 - done]
