"""A fleet while it is upgraded: some processes run the version before, from its wheel, and some this one.

What one version writes into Redis, the other reads, changes and runs: ``docs/how-to/migrate.md`` promises it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.integration.project.test_wheel import run
from tests.support import ROOT
from tests.support.conditions import until
from tests.support.workers.harness import MakeProj, Proj, Worker

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("fleet")]

#: The version before this one while nothing is released; then it is the newest tag.
FIRST = "8b407f67dab3c9a4e651b747150780bc206b7360"
#: Publishes what the arguments say, as JSON: ``[task, arguments, options]`` each. Prints the ids, as JSON.
SEND = """
import json, sys
import chain_tasks
from proj import app

def send(task, args, options):
    result = app.tasks[f"proj.{task}"].apply_async(args, **options)
    return [result.id, getattr(result, "if_waiting", None)]

print(json.dumps([send(*call) for call in json.loads(sys.argv[1])]))
"""
#: Settings of the app, and of its broker: each layout, and a journal for what is due late.
BROKERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "hash": lambda _: {"layout": "hash"},
    "redisson": lambda _: {"layout": "redisson"},
    "journal": lambda directory: {"journal_url": f"sqlite:///{directory}/journal.db"},
}


def git(*args: str) -> bytes:
    """Runs git in the checkout. Returns what it printed."""
    return subprocess.run(["git", "-C", ROOT, *args], capture_output=True, check=True).stdout


def version_before() -> str:
    """Returns the newest tag of a release that this commit stands on, or ``FIRST``; skips where git has neither."""
    try:
        tags = git("tag", "--list", "v*", "--merged", "HEAD", "--no-contains", "HEAD", "--sort", "-version:refname")
        before = (tags.decode().split() or [FIRST])[0]
        git("cat-file", "-e", f"{before}^{{commit}}")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the version before is not in this checkout: it has no history")
    return before


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Where the wheel of the version before is unpacked, and where that of this one."""
    directory = tmp_path_factory.mktemp("wheels")
    source = directory / "source"
    source.mkdir()
    archive = git("archive", "--format", "tar", version_before())
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    places = []
    for name, checkout in (("before", source), ("now", ROOT)):
        out = directory / name
        run(directory, sys.executable, "-m", "build", "--wheel", "--outdir", out, checkout)
        [wheel] = out.glob("*.whl")
        ZipFile(wheel).extractall(out)
        places.append(str(out))
    return places[0], places[1]


@pytest.fixture
def fleet(
    request: pytest.FixtureRequest, wheels: tuple[str, str], make_proj: MakeProj, tmp_path: Path
) -> Iterator[list[Proj]]:
    """An app on one broker, in the version before and in this one."""
    options = BROKERS[getattr(request, "param", "hash")](tmp_path)
    conf = {"include": ["chain_tasks", "periodic_tasks"], "broker_transport_options": options, "chain": "1s,1s"}
    first = make_proj(**conf)
    projs = [replace(first, python_path=path, workers=[]) for path in wheels]
    for proj, path in zip(projs, wheels, strict=True):
        found = proj.program("-c", "import kombu_delayq, celery_ext; print(kombu_delayq.__path__, celery_ext.__path__)")
        assert found.stdout.count(f"'{path}{os.sep}") == 2, found.stdout
    yield projs
    for proj in projs:
        proj.close()


def worker(proj: Proj, *args: str, **options: Any) -> Worker:
    """Starts a worker of one version, with a name of its own."""
    name = Path(proj.python_path).name
    return proj.worker("-n", f"{name}@%h", *args, pool="threads", **options)


def send(proj: Proj, *calls: tuple[str, list[Any], dict[str, Any]]) -> list[list[Any]]:
    """Publishes calls in a process of one version. Returns of each its id, and what became of it."""
    found: list[list[Any]] = json.loads(proj.program("-c", SEND, json.dumps(calls)).stdout)
    return found


def listed(proj: Proj, *command: str) -> list[dict[str, Any]]:
    """Returns what a command prints as JSON, in one version, without what each second changes."""
    found = [json.loads(line) for line in proj.celery("delayq", *command, "--json").splitlines()]
    return [{name: value for name, value in one.items() if name != "due_in_s"} for one in found]


def letters_of(proj: Proj) -> list[dict[str, Any]]:
    """Returns the dead letters that one version lists."""
    return listed(proj, "dead-letters", "list", "failed")


def values_of(proj: Proj) -> list[Any]:
    """Returns the values that tasks have noted, without those of periodic runs."""
    return sorted(run["value"] for run in proj.runs() if run.get("value") not in (None, "tick"))


@pytest.fixture(params=["before", "now"])
def pair(request: pytest.FixtureRequest, fleet: list[Proj]) -> tuple[Proj, Proj]:
    """The version that has something first, and the other one: each in turn."""
    before, now = fleet
    return (before, now) if request.param == "before" else (now, before)


@pytest.mark.parametrize("fleet", BROKERS, indirect=True)
def test_each_version_runs_what_the_other_sends(fleet: list[Proj]) -> None:
    """Tasks due now and later, retries, delay chains and periodic runs run once each, and none early."""
    tick = {"task": "proj.record", "args": ["tick"], "schedule": 1.0}
    workers = [worker(proj, periodic_entries={"tick": tick}) for proj in fleet]
    wanted = []
    for proj in fleet:
        name = Path(proj.python_path).name
        now = [("record", [f"{name} now {n}"], {"priority": n % 10}) for n in range(20)]
        later = [("record", [f"{name} later {n}"], {"countdown": 0.5 + n / 20}) for n in range(20)]
        once = [("record", [f"{name} once"], {"countdown": 1, "waiting_key": name})] * 2
        send(proj, *now, *later, *once, *[("flaky", [2, 0.3], {})] * 3, *[("notify", [2, name], {})] * 2)
        wanted += [args[0] for _, args, _ in [*now, *later, once[0]]] + [name] * 6
    before = fleet[0]
    until(lambda: len(before.runs(name="flaky")) == 18 and len(values_of(before)) >= len(wanted))
    assert values_of(before) == sorted(wanted)
    for name in ("flaky", "notify"):
        retries = sorted(run["retries"] for run in before.runs(name=name))
        assert retries == sorted([0, 1, 2] * (len(retries) // 3))
    early = [run for run in before.runs() if run["eta"] and run["at"] < _timestamp(run["eta"])]
    assert not early
    assert {run["pid"] for run in before.runs()} == {one.process.pid for one in workers}
    ticks = before.await_runs(4, value="tick")
    assert len({run["id"] for run in ticks}) == len(ticks)
    steps = {b - a for a, b in pairwise(sorted(_timestamp(run["eta"]) for run in ticks))}
    assert steps == {1.0}


@pytest.mark.parametrize("fleet", BROKERS, indirect=True)
def test_each_version_shows_and_changes_what_the_other_has_stored(pair: tuple[Proj, Proj]) -> None:
    """Waiting tasks are listed alike; one is cancelled, one rescheduled, one run now, one kept and one replaced."""
    owner, other = pair
    keyed = {"keep": {"waiting_key": "a"}, "replace": {"waiting_key": "b"}}
    far = {"countdown": 40 * 86_400}
    sent = send(owner, *(("record", [f"old {n}"], far | more) for n, more in enumerate([{}, {}, {}, *keyed.values()])))
    ids = [identity for identity, _ in sent]
    shown = listed(other, "list", "celery")
    assert shown == listed(owner, "list", "celery")
    assert {task["id"] for task in shown} == set(ids)
    again = [("record", [f"new {mode}"], far | key | {"if_waiting": mode}) for mode, key in keyed.items()]
    assert [became for _, became in send(other, *again)] == ["kept", "replaced"]
    other.celery("delayq", "cancel", "--yes", ids[0])
    other.celery("delayq", "reschedule", "--yes", "--countdown", "2s", ids[1])
    other.celery("delayq", "run-now", "--yes", ids[2])
    one = worker(owner)
    until(lambda: values_of(owner) == ["old 1", "old 2"])
    assert one.stop() == 0
    left = listed(owner, "list", "celery")
    assert left == listed(other, "list", "celery")
    assert {task["argsrepr"] for task in left} == {"['old 3']", "['new replace']"}


def test_each_version_runs_again_what_a_killed_worker_of_the_other_held(pair: tuple[Proj, Proj]) -> None:
    """A worker is killed that holds tasks and leads the transfer: the other runs what it held and what comes due."""
    owner, other = pair
    killed = worker(owner, concurrency=4)
    send(owner, *(("late_acked", [60, f"held {n}"], {}) for n in range(4)))
    owner.await_runs(4, name="late_acked")
    send(other, *(("record", [f"due {n}"], {"countdown": 1}) for n in range(4)))
    worker(other, concurrency=8)
    killed.kill()
    wanted = sorted([f"held {n}" for n in range(4)] * 2 + [f"due {n}" for n in range(4)])
    until(lambda: values_of(owner) == wanted)


def test_each_version_replays_dead_letters_of_the_other(pair: tuple[Proj, Proj]) -> None:
    """A task that a worker of one version buries is listed alike in both, and runs again when the other replays it."""
    owner, other = pair
    one = worker(owner)
    [[identity, _]] = send(owner, ("doomed", ["raise"], {}))
    letters = until(lambda: letters_of(owner)) or []
    assert letters == letters_of(other)
    assert [letter["id"] for letter in letters] == [identity]
    assert one.stop() == 0
    other.celery("delayq", "dead-letters", "replay", "failed", "--all")
    assert letters_of(owner) == []
    worker(other)
    owner.await_runs(2, name="doomed")
    until(lambda: letters_of(owner))


def _timestamp(eta: str) -> float:
    return datetime.fromisoformat(eta).timestamp()
