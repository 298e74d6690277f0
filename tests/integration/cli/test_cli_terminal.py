"""What the commands do at a terminal: questions, the progress bar, completion; and with very much input."""

import json
import os
import subprocess
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from kombu_delayq.store.types import Offer
from tests.support.commands.shell import BIN, lines, terminal
from tests.support.conditions import until_equal
from tests.support.workers.harness import APPS, Proj

pytestmark = pytest.mark.wide

#: More than pipes hold.
MANY = 20_000


def _waiting(proj: Proj) -> set[str]:
    return {line["id"] for line in lines(proj.server, "list")}


def _fill(proj: Proj, count: int) -> None:
    """Puts messages straight into the store, in a queue ``many``."""
    body = json.dumps({"headers": {"task": "t", "argsrepr": "x" * 100}})
    with proj.connection() as connection:
        store = connection.default_channel.store
        for at in range(0, count, 500):
            store.delivery.offer(
                "many", *(Offer(f"{n:06}", "+3600000", 0, body) for n in range(at, min(at + 500, count)))
            )


def test_a_destructive_command_asks_and_takes_a_no(proj: Proj) -> None:
    """At a terminal cancel asks for the id and purge for the counts; a no changes nothing and exits with 1."""
    proj.send("record", countdown=3600, queue="orders", task_id="esc\x1b[2J")
    with terminal(proj.server, "cancel", "esc\x1b[2J") as process:
        process.read_until(f"Cancel task esc\\x1b[2J on {proj.server.url}? [y/N]")
        process.type("n")
        assert process.wait() == 1
    with terminal(proj.server, "queues", "purge", "orders") as process:
        process.read_until(f"Remove all delayed messages, now 1 of queue orders, on {proj.server.url}? [y/N]")
        process.type("")
        assert process.wait() == 1
    assert _waiting(proj) == {"esc\x1b[2J"}


@pytest.mark.journey
def test_a_destructive_command_asks_and_takes_a_yes(proj: Proj) -> None:
    """After a yes the command goes ahead; the question is not in its output."""
    for each in ("a", "b", "c"):
        proj.send("record", countdown=3600, queue="orders", task_id=each)
    with terminal(proj.server, "cancel", "a", "b", stdout=subprocess.PIPE) as process:
        process.read_until(f"Cancel 2 tasks on {proj.server.url}? [y/N]")
        process.type("y")
        assert process.wait() == 0
        assert process.process.stdout
        # Older versions of click write the blank after their question to stdout.
        assert process.process.stdout.read().lstrip() == b"a: cancelled\nb: cancelled\n"
    with terminal(proj.server, "queues", "purge", "orders") as process:
        process.read_until("[y/N]")
        process.type("y")
        assert process.wait() == 0
        assert "queue orders: 1 delayed message removed" in process.script
    assert _waiting(proj) == set()


@pytest.mark.parametrize(
    ("command", "closed", "code"),
    [
        ("queues purge orders", "<&-", 2),
        ("import", "<&-", 1),
        ("list", ">&-", 0),
        ("export", ">&-", 0),
        ("repair --dry-run", "2>&-", 0),
        ("cancel -q orders --yes", "<&- >&- 2>&-", 0),
    ],
)
def test_closed_standard_streams_lead_nowhere(proj: Proj, command: str, closed: str, code: int) -> None:
    """Without a standard stream a command does the same as with one that leads nowhere, and prints no traceback."""
    proj.send("record", countdown=3600, queue="orders")
    full = f"{BIN / 'delayq'} --broker {proj.server.url} {command} {closed}"
    done = subprocess.run(["sh", "-c", full], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert bool(_waiting(proj)) == ("--yes" not in command)


def test_without_a_terminal_for_the_question_nobody_is_asked(proj: Proj) -> None:
    """Ids from standard input leave no place for an answer, and a redirected stderr hides the question."""
    with terminal(proj.server, "cancel", "-") as process:
        assert process.wait() == 2
        assert "--yes" in process.script
    with terminal(proj.server, "cancel", "a", stderr=subprocess.DEVNULL) as process:
        assert process.wait() == 2


def test_many_ids_are_answered_line_by_line(proj: Proj) -> None:
    """With --json each id has its line, written while further ids are read, and there is no bar without a terminal."""
    proj.send("record", countdown=3600, task_id=f"{MANY // 2:036}")
    args = [str(BIN / "delayq"), "-b", proj.server.url, "run-now", "--json", "-"]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        feeding = Thread(target=_feed, args=(process.stdin,))
        feeding.start()
        seen = done = 0
        for line in process.stdout:
            seen += 1
            done += b'"transferred"' in line
        feeding.join()
        assert process.stderr
        assert process.stderr.read() == b""
    assert (process.returncode, seen, done) == (0, MANY, 1)
    assert proj.server.client().llen("celery") == 1


def _feed(pipe: Any) -> None:
    pipe.writelines(b"%036d\n" % n for n in range(MANY))
    pipe.close()


def test_the_bar_of_a_listing_knows_its_end(proj: Proj) -> None:
    """A listing into a file shows on the terminal how much is done; at the terminal itself it shows the list alone."""
    _fill(proj, 50_000)
    args = ["list", "--limit", "0", "--json"]
    with open(os.devnull, "wb") as nowhere, terminal(proj.server, *args, stdout=nowhere) as process:
        assert process.wait() == 0
        assert "listing" in process.script
        assert "50000/50000" in process.script
    with terminal(proj.server, "list", "--limit", "1000") as process:
        assert process.wait() == 0
        assert "listing" not in process.script


def test_a_reader_that_has_enough_ends_a_listing_quietly(proj: Proj, tmp_path: Path) -> None:
    """A closed pipe, as of `… | head`, ends with 0 what only looks, and with 1 what is not done; nobody is blamed."""
    _fill(proj, 3000)
    command = f"set -o pipefail; {BIN}/delayq -b {proj.server.url}"
    (tmp_path / "ids").write_text("".join(f"{n:06}\n" for n in range(3000)))
    looks = ("list --limit 0 --json", "list --limit 0", "export", "show - < ids")
    for args in (*looks, "run-now --json - < ids"):
        done = subprocess.run(
            ["bash", "-c", f"{command} {args} | head -n 1"], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert (len(done.stdout.splitlines()), done.stderr, done.returncode) == (1, "", int(args not in looks)), args


def test_an_output_without_room_is_told_as_such(proj: Proj) -> None:
    """A full disk under the output ends a command with one line that does not blame Redis, and exit code 1."""
    _fill(proj, 1)
    for args in (["list"], ["export"], ["export", "--output", "/dev/full"], ["status", "--json"]):
        with open("/dev/full", "w") as full:
            command = [BIN / "delayq", "-b", proj.server.url, *args]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.stderr == "Error: the output cannot be written: [Errno 28] No space left on device\n", args
        assert done.returncode == 1


def test_a_terminal_that_knows_few_letters_gets_the_others_escaped(proj: Proj) -> None:
    """Text that stdout cannot encode is escaped, and is no error."""
    proj.send("record", "größe", countdown=3600, task_id="漢")
    done = subprocess.run(
        [BIN / "delayq", "-b", proj.server.url, "list"],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        encoding="latin-1",
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert ("\\u6f22" in done.stdout, "größe" in done.stdout) == (True, True)


def _completed(words: str) -> list[str]:
    """Returns what bash is offered for the last word of a line."""
    before = words.split(" ")[:-1]
    args = [str(BIN / before[0])]
    variable = f"_{before[0].upper()}_COMPLETE"
    environment = {**os.environ, variable: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(before))}
    done = subprocess.run(args, cwd=APPS, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.partition(",")[2] for line in done.stdout.split()]


@pytest.mark.parametrize("command", [["list"], ["dead-letters", "list"]])
@pytest.mark.parametrize("option", ["-b", "--broker", "-o", "--journal-url"])
def test_an_option_of_all_commands_behind_a_command_says_where_it_stands(command: list[str], option: str) -> None:
    """The error says that the option comes before the command."""
    done = subprocess.run([BIN / "delayq", *command, option, "x"], capture_output=True, text=True)
    assert done.returncode == 2
    assert f"{option} comes before the command: delayq {option} … {command[0]}" in done.stderr


def test_completion_under_celery_asks_the_broker_of_the_app(proj: Proj, monkeypatch: pytest.MonkeyPatch) -> None:
    """`celery -A proj delayq list <TAB>` offers queues too, as the app is imported for it."""
    proj.send("record", countdown=3600, queue="orders")
    monkeypatch.setenv("PROJ_CONF", json.dumps(proj.conf))
    monkeypatch.setenv("PYTHONPATH", str(APPS))
    until_equal(lambda: _completed("celery -A proj delayq list o"), ["orders"])  # the broker may answer too late
