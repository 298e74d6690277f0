"""``delayq cancel``, ``reschedule``, ``run-now`` and ``purge``."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.commands.shell import lines, run
from tests.support.workers.harness import APPS, Proj

pytestmark = pytest.mark.both_layouts

PRELOADED = """
from click import Option
from tests.support.apps.proj import app
app.user_options["preload"].add(Option(["--theme"], default="dark"))
"""


def _three(proj: Proj) -> list[str]:
    """Sends three tasks that are due in an hour, in two queues. Returns their ids."""
    ids = ["a", "b", "c"]
    for n, each in enumerate(ids):
        proj.send("record", each, countdown=3600, queue=f"q{n % 2}", task_id=each)
    return ids


def _waiting(proj: Proj) -> set[str]:
    return {line["id"] for line in lines(proj.server, "list")}


def _celery(proj: Proj, app: str, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "celery", "-A", app, "delayq", *args],
        cwd=APPS,
        env={**os.environ, "PROJ_CONF": json.dumps(proj.conf), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_cancel_says_for_each_task_what_became_of_it(proj: Proj) -> None:
    """Tasks are found in any queue, the rest stays, and one that does not wait is told apart on stderr."""
    _three(proj)
    result = run(proj.server, "cancel", "--yes", "a", "nope", "b")
    assert result.stdout == "a: cancelled\nb: cancelled\n"
    assert result.stderr.splitlines()[0] == "nope: not waiting"
    assert "results stay as they are" in result.stderr
    assert _waiting(proj) == {"c"}
    assert proj.server.client().llen("q0") == proj.server.client().llen("q1") == 0


def test_what_is_not_waiting_fails(proj: Proj) -> None:
    """When none of the ids waits, each command says so and exits with 1; a second cancel is one such."""
    _three(proj)
    run(proj.server, "cancel", "--yes", "a")
    for args in (["cancel", "--yes"], ["reschedule", "--countdown", "10"], ["run-now"]):
        assert run(proj.server, *args, "a", "nope", code=1).stderr == "a: not waiting\nnope: not waiting\n"
        outcomes = lines(proj.server, *args, "a", code=1)
        assert outcomes == [{"id": "a", "outcome": "not_delayed"}]
    assert _waiting(proj) == {"b", "c"}


def test_nothing_is_destroyed_without_a_yes(proj: Proj) -> None:
    """Where nobody can be asked, a command refuses with exit code 2, says what to give, and changes nothing."""
    _three(proj)
    for args in (["cancel", "a"], ["cancel", "-"], ["queues", "purge", "q0"]):
        result = run(proj.server, *args, stdin="a\n", code=2)
        assert "--yes" in result.stderr
        assert result.stdout == ""
    assert _waiting(proj) == {"a", "b", "c"}


@pytest.mark.wide
def test_with_an_app_a_cancelled_result_is_revoked(proj: Proj) -> None:
    """`celery -A proj delayq cancel` marks the results, for who waits for one learns it there."""
    sent = proj.send("record", countdown=3600, task_id="a")
    left = proj.send("record", countdown=3600, task_id="b")
    done = _celery(proj, "proj", "cancel", "--yes", "a", "nope")
    assert (done.returncode, done.stdout, done.stderr) == (0, "a: cancelled\n", "nope: not waiting\n")
    assert (sent.state, left.state) == ("REVOKED", "PENDING")
    assert _waiting(proj) == {"b"}


@pytest.mark.wide
def test_results_that_cannot_be_reached_are_named(proj: Proj) -> None:
    """The task is cancelled all the same; that its result could not be marked is on stderr, and the exit code is 1."""
    proj.send("record", countdown=3600, task_id="a")
    proj.conf["result_backend"] = "redis://127.0.0.1:1/0"
    done = _celery(proj, "proj", "cancel", "--yes", "a")
    assert (done.returncode, done.stdout) == (1, "a: cancelled\n")
    assert "task a is cancelled" in done.stderr
    assert "Traceback" not in done.stderr
    assert _waiting(proj) == set()


@pytest.mark.wide
def test_preload_options_of_an_app_do_no_harm(proj: Proj, tmp_path: Path) -> None:
    """An app that has preload options of its own, which some versions of Celery hand to every command, is served."""
    (tmp_path / "preloaded.py").write_text(PRELOADED)
    done = _celery(proj, "preloaded", "list", PYTHONPATH=os.pathsep.join([str(tmp_path), str(APPS.parents[2])]))
    assert done.returncode == 0, done.stderr


def test_ids_from_standard_input_are_told_in_sum(proj: Proj) -> None:
    """`-` reads ids, one a line, together with those on the command line; text is the sum, JSON a line for each."""
    _three(proj)
    assert run(proj.server, "run-now", "-", stdin="").stdout == "no ids were given\n"
    result = run(proj.server, "reschedule", "-", "c", "--countdown", "2h", stdin="a\r\n\nnope\n")
    assert result.stdout.startswith("2 rescheduled to ")
    assert result.stdout.endswith(", 1 not waiting\n")
    outcomes = lines(proj.server, "cancel", "--yes", "-", stdin="a\nnope\nb")
    assert [line["outcome"] for line in outcomes] == ["cancelled", "not_delayed", "cancelled"]
    assert _waiting(proj) == {"c"}


def test_reschedule_takes_times_and_durations(proj: Proj) -> None:
    """Each form of a time is the new due time, in the index and in the message's own eta."""
    _three(proj)
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    assert "rescheduled to" in run(proj.server, "reschedule", "a", "--eta", tomorrow.isoformat()).stdout
    run(proj.server, "reschedule", "b", "--eta", "3h")
    run(proj.server, "reschedule", "c", "--countdown", "90")
    of_id = {line["id"]: line for line in lines(proj.server, "show", "a", "b", "c")}
    assert datetime.fromisoformat(of_id["a"]["due"]) == datetime.fromisoformat(of_id["a"]["eta"]) == tomorrow
    assert 10_700 < of_id["b"]["due_in_s"] <= 10_800
    assert 30 < of_id["c"]["due_in_s"] <= 90
    for line in of_id.values():
        due, eta = (datetime.fromisoformat(line[of]) for of in ("due", "eta"))
        assert timedelta() <= due - eta < timedelta(milliseconds=0 if proj.layout == "hash" else 1) or due == eta
    local = tomorrow.astimezone().replace(tzinfo=None).isoformat()
    run(proj.server, "reschedule", "b", "--eta", local)
    assert lines(proj.server, "show", "b")[0]["due"] == of_id["a"]["due"]


def test_reschedule_needs_one_time(proj: Proj) -> None:
    """None, several, or what is no time: exit code 2, and nothing is changed."""
    _three(proj)
    before = lines(proj.server, "show", "a")[0]["due"]
    two = (["--eta", "1h", "--countdown", "5"], ["--eta", "1h", "--by", "1d"])
    for times in ([], *two, ["--eta", "soon"], ["--countdown", "-5"], ["--by", "60"], ["--by", "--1d"]):
        run(proj.server, "reschedule", "a", *times, code=2)
    assert lines(proj.server, "show", "a")[0]["due"] == before


def test_reschedule_moves_each_task(proj: Proj) -> None:
    """With ``--by`` each task is due so much later or earlier than it was, by id or selected."""
    _three(proj)
    before = _dues(proj)
    assert (
        run(proj.server, "reschedule", "--by", "1d", "a", "b").stdout == "a: rescheduled by 1d\nb: rescheduled by 1d\n"
    )
    assert run(proj.server, "reschedule", "--by", "-30m", "-q", "q0", "--yes").stdout == "2 rescheduled\n"
    assert run(proj.server, "reschedule", "--by", "-2h", "c").stdout == "c: due already, sent to be run\n"
    after = _dues(proj)
    assert after.keys() == {"a", "b"}
    assert after["a"] - before["a"] == pytest.approx(86_400 - 1800, abs=0.01)
    assert after["b"] - before["b"] == pytest.approx(86_400, abs=0.01)


def _dues(proj: Proj) -> dict[str, float]:
    return {line["id"]: datetime.fromisoformat(line["due"]).timestamp() for line in lines(proj.server, "list")}


@pytest.mark.parametrize("layout", ["hash"], indirect=True)
def test_a_message_that_cannot_be_rewritten_is_left(proj: Proj) -> None:
    """A damaged message keeps its due time, that is said, and the exit code is 1 although another task was moved."""
    _three(proj)
    client = proj.server.client()
    value = client.hget("delayq:{q1}:bodies", "b")
    client.hset("delayq:{q1}:bodies", "b", str(value).replace('"headers"', '"headers', 1))
    result = run(proj.server, "reschedule", "a", "b", "--countdown", "5", code=1)
    assert result.stdout.startswith("a: rescheduled")
    assert result.stderr == "b: not changed, because the message cannot be rewritten\n"


def test_odd_ids_are_found_from_arguments_and_from_standard_input(proj: Proj) -> None:
    """Blanks, quotes, letters beyond ASCII and a leading dash make no difference; printed, controls are escaped."""
    odd = [" blank ", "'\";$(x)", "größe-漢字", "-dash", "esc\x1b[2J"]
    for each in odd:
        proj.send("record", countdown=3600, task_id=each)
    result = run(proj.server, "run-now", "--", *odd[:2], odd[3])
    assert len(result.stdout.splitlines()) == 3
    result = run(proj.server, "cancel", "--yes", "-", odd[4], stdin=f"{odd[2]}\n")
    assert result.stdout == "2 cancelled\n"
    result = run(proj.server, "run-now", odd[4], code=1)
    assert result.stderr == "esc\\x1b[2J: not waiting\n"
    assert _waiting(proj) == set()


def test_bytes_that_are_no_text_are_ids_too(proj: Proj) -> None:
    """Bytes that are no UTF-8 reach Redis as they are, and the terminal escaped."""
    result = run(proj.server, "show", "-", stdin=b"\xff\xfe\n", code=1)
    assert result.stderr == "\\udcff\\udcfe: not waiting\n"
    run(proj.server, "cancel", "--yes", "-", stdin=b"\xff\n", code=1)
    with proj.connection() as connection:
        store = connection.default_channel.store
        raw = store.client.zrange(store.keys.cancelled, 0, -1)
    assert raw == [b"\xff"]


@pytest.mark.parametrize(
    "args", [["list"], ["show", "a"], ["cancel", "-y", "a"], ["reschedule", "a", "--eta", "1h"], ["run-now", "a"]]
)
def test_a_broker_that_is_down_is_told_in_one_line(args: list[str]) -> None:
    """The line names the broker without its password, and the exit code is 1."""

    class Down:
        url = "redis://:s3cret@127.0.0.1:1/0"

    result = run(Down(), *args, code=1)  # type: ignore[arg-type]
    assert "redis://:**@127.0.0.1:1/0: " in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "s3cret" not in result.stdout + result.stderr
