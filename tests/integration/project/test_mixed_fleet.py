"""A fleet while it is upgraded: some processes run the version before, from its wheel, and some this one.

What one version writes into Redis, the other reads, changes and runs: ``docs/how-to/migrate.md`` promises it.
"""

import json
import os
import signal
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

from celery_ext.limits import LIMIT_HEADER, Limit, LimitStore, turns
from kombu_delayq.channel import connect_store
from kombu_delayq.transfer.worker import TransferWorker
from tests.integration.project.test_wheel import run
from tests.support import ROOT
from tests.support.conditions import until
from tests.support.workers.harness import APPS, MakeProj, Proj, Worker

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("fleet")]

#: The version before this one while nothing is released; then it is the newest tag.
FIRST = "8b407f67dab3c9a4e651b747150780bc206b7360"
#: Does what each line says, a request in JSON, and answers with a line: publishes calls, ``[task, arguments, options]``
#: each, and says what became of them, or runs a command of ``celery`` and says what it printed.
SHELL = """
import json, sys
import celery_ext, chain_tasks, kombu_delayq
from celery.bin.celery import celery
from click.testing import CliRunner
from proj import app

def send(*calls):
    results = [app.tasks[f"proj.{task}"].apply_async(args, **options) for task, args, options in calls]
    return [[result.id, getattr(result, "if_waiting", None)] for result in results]

def command(*args):
    done = CliRunner().invoke(celery, ["-A", "proj", *args], catch_exceptions=False)
    return [done.exit_code, done.stdout, done.stderr]

def where():
    return [*kombu_delayq.__path__, *celery_ext.__path__]

for line in sys.stdin:
    name, args = json.loads(line)
    print(json.dumps(globals()[name](*args)), file=sys.__stdout__, flush=True)
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
    """Returns the newest tag of a release that this commit stands on, or ``FIRST``; the workflow has to have it."""
    try:
        tags = git("tag", "--list", "v*", "--merged", "HEAD", "--no-contains", "HEAD", "--sort", "-version:refname")
        before = (tags.decode().split() or [FIRST])[0]
        git("cat-file", "-e", f"{before}^{{commit}}")
    except (OSError, subprocess.CalledProcessError):
        reason = "the version before is not in this checkout: it has no history"
        if "GITHUB_ACTIONS" in os.environ:  # the workflow fetches the history
            pytest.fail(reason)
        pytest.skip(reason)
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


class Version:
    """One version in the fleet: its workers, and a program that publishes and looks.

    Args:
        proj: The app, where processes find the packages of this version.
    """

    def __init__(self, proj: Proj) -> None:
        self.proj, self.name = proj, Path(proj.python_path).name
        self._shell: Any = subprocess.Popen(
            [sys.executable, "-c", SHELL],
            cwd=APPS,
            env={**os.environ, **proj.environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, name: str, *args: Any) -> Any:
        """Has the program do something. Returns its answer."""
        self._shell.stdin.write(json.dumps([name, args]) + "\n")
        self._shell.stdin.flush()
        answer = self._shell.stdout.readline()
        assert answer, "the program has ended"
        return json.loads(answer)

    def send(self, *calls: tuple[str, list[Any], dict[str, Any]]) -> list[list[Any]]:
        """Publishes calls. Returns of each its id, and what became of it."""
        found: list[list[Any]] = self.ask("send", *calls)
        return found

    def delayq(self, *args: str) -> str:
        """Runs a command of ``delayq``, which must succeed. Returns what it printed."""
        code, output, errors = self.ask("command", "delayq", *args)
        assert code == 0, output + errors
        return str(output)

    def listed(self, *command: str) -> list[dict[str, Any]]:
        """Returns what a command prints as JSON, without what each second changes."""
        found = [json.loads(line) for line in self.delayq(*command, "--json").splitlines()]
        return [{name: value for name, value in one.items() if name != "due_in_s"} for one in found]

    def waiting(self) -> list[dict[str, Any]]:
        """Returns the tasks that wait."""
        return self.listed("list", "celery")

    def letters(self) -> list[dict[str, Any]]:
        """Returns the dead letters."""
        return self.listed("dead-letters", "list", "failed")

    def worker(self, *args: str, **options: Any) -> Worker:
        """Starts a worker with a name of its own, which sends a periodic task to another queue each second."""
        tick = {"task": "proj.record", "args": ["tick"], "schedule": 1.0, "options": {"queue": "ticks"}}
        options = {"pool": "threads", "periodic_entries": {"tick": tick}, **options}
        return self.proj.worker("-n", f"{self.name}@%h", "-Q", "celery,ticks", *args, **options)

    def close(self) -> None:
        """Ends all its processes."""
        self._shell.kill()
        self._shell.communicate(timeout=60)
        self.proj.close()


@pytest.fixture
def fleet(
    request: pytest.FixtureRequest, wheels: tuple[str, str], make_proj: MakeProj, tmp_path: Path
) -> Iterator[list[Version]]:
    """An app on one broker, in the version before and in this one."""
    options = BROKERS[request.param](tmp_path)
    conf = {"include": ["chain_tasks", "periodic_tasks"], "broker_transport_options": options, "chain": "1s,3s"}
    first = make_proj(**conf)
    versions = [Version(replace(first, python_path=path, workers=[])) for path in wheels]
    for version, path in zip(versions, wheels, strict=True):
        found = version.ask("where")
        assert len(found) == 2
        assert all(each.startswith(path + os.sep) for each in found), found
    yield versions
    for version in versions:
        version.close()


@pytest.fixture(params=["upgrade", "downgrade"])
def pair(request: pytest.FixtureRequest, fleet: list[Version]) -> tuple[Version, Version]:
    """The version that comes first, and the one that takes its place."""
    before, now = fleet
    return (before, now) if request.param == "upgrade" else (now, before)


def values_of(proj: Proj) -> list[Any]:
    """Returns the values that tasks have noted, without those of periodic runs."""
    return sorted(run["value"] for run in proj.runs() if run.get("value") not in (None, "tick"))


def early(proj: Proj) -> list[dict[str, Any]]:
    """Returns the runs that began before their time."""
    return [run for run in proj.runs() if run["eta"] and run["at"] < _timestamp(run["eta"])]


@pytest.mark.parametrize("fleet", BROKERS, indirect=True)
def test_each_version_runs_what_the_other_sends(fleet: list[Version]) -> None:
    """Tasks due now and later, retries, delay chains and periodic runs run once each, and none early."""
    workers = [version.worker() for version in fleet]
    wanted = []
    for version in fleet:
        name = version.name
        now = [("record", [f"{name} now {n}"], {"priority": n % 10}) for n in range(20)]
        later = [("record", [f"{name} later {n}"], {"countdown": 0.5 + n / 20}) for n in range(20)]
        once = [("record", [f"{name} once"], {"countdown": 1, "waiting_key": name})] * 2
        version.send(*now, *later, *once, *[("flaky", [2, 0.3], {})] * 3, *[("notify", [2, name], {})] * 2)
        wanted += [args[0] for _, args, _ in [*now, *later, once[0]]] + [name] * 6
    proj = fleet[0].proj
    until(lambda: len(proj.runs(name="flaky")) == 18 and len(values_of(proj)) >= len(wanted))
    assert values_of(proj) == sorted(wanted)
    for name in ("flaky", "notify"):
        retries = sorted(run["retries"] for run in proj.runs(name=name))
        assert retries == sorted([0, 1, 2] * (len(retries) // 3))
    assert not early(proj)
    assert {run["pid"] for run in proj.runs()} == {one.process.pid for one in workers}
    ticks = proj.await_runs(4, value="tick")
    assert len({run["id"] for run in ticks}) == len(ticks)
    steps = {b - a for a, b in pairwise(sorted(_timestamp(run["eta"]) for run in ticks))}
    assert steps == {1.0}


@pytest.mark.parametrize("fleet", BROKERS, indirect=True)
def test_an_upgrade_and_a_downgrade_find_every_kind_of_message(pair: tuple[Version, Version]) -> None:
    """One version is killed with messages of each kind in Redis: the other shows, changes and runs them, none early."""
    owner, other = pair
    proj = owner.proj
    killed = owner.worker(concurrency=8)
    [*_, [doomed, _]] = owner.send(*[("hang_once", [f"held {n}"], {}) for n in range(2)], ("doomed", ["raise"], {}))
    proj.await_runs(2, name="hang_once")
    proj.await_runs(1, value="tick")
    letters = until(owner.letters) or []
    assert [letter["id"] for letter in letters] == [doomed]
    assert other.letters() == letters
    owner.send(("flaky", [1, 4], {}), ("notify", [2, "chain"], {}))

    def both_wait() -> bool:
        return {"proj.flaky", "proj.notify"} <= {task["task"] for task in owner.waiting()}

    def stopped_while_both_wait() -> bool:
        """Stops the worker while it runs neither: a task that it has acknowledged early would be lost with it."""
        if both_wait():
            killed.process.send_signal(signal.SIGSTOP)
            if both_wait():
                return True
            killed.process.send_signal(signal.SIGCONT)
        return False

    until(stopped_while_both_wait, what="both are retried")
    killed.kill()

    keyed = {"keep": {"waiting_key": "a"}, "replace": {"waiting_key": "b"}}
    far = {"countdown": 40 * 86_400}
    sent = owner.send(
        *(("record", [f"old {n}"], far | more) for n, more in enumerate([{}, {}, {}, *keyed.values()])),
        *(("record", [f"ready {n}"], {"priority": n}) for n in (0, 5, 9)),
        ("record", ["due"], {"countdown": 1}),
    )
    ids = [identity for identity, _ in sent]
    shown = other.waiting()
    assert shown == owner.waiting()
    assert {task["id"] for task in shown} >= {*ids[:5]}
    again = [("record", [f"new {mode}"], far | key | {"if_waiting": mode}) for mode, key in keyed.items()]
    assert [became for _, became in other.send(*again)] == ["kept", "replaced"]
    other.delayq("cancel", "--yes", ids[0])
    other.delayq("reschedule", "--yes", "--countdown", "2s", ids[1])
    other.delayq("run-now", "--yes", ids[2])
    other.delayq("dead-letters", "replay", "failed", "--all")
    assert owner.letters() == []

    one = other.worker(concurrency=8)
    held = [f"held {n}" for n in range(2)]
    wanted = [*held * 2, "raise", "raise", *["chain"] * 3, "old 1", "old 2", "ready 0", "ready 5", "ready 9", "due"]
    until(lambda: len(values_of(proj)) >= len(wanted) and len(proj.runs(name="flaky")) >= 2, what="all has run")
    assert (values_of(proj), len(proj.runs(name="flaky"))) == (sorted(wanted), 2)
    until(lambda: proj.runs(value="tick", pid=one.process.pid), what="the periodic entry goes on")
    until(owner.letters, what="it is a dead letter again")
    assert one.stop() == 0
    assert not early(proj)
    ticks = [run["id"] for run in proj.runs(value="tick")]
    assert len(ticks) == len({*ticks})
    left = owner.waiting()
    assert left == other.waiting()
    assert {task["argsrepr"] for task in left} == {"['old 3']", "['new replace']"}


def _timestamp(eta: str) -> float:
    return datetime.fromisoformat(eta).timestamp()


@pytest.mark.parametrize("fleet", ["hash"], indirect=True)
def test_limits_while_the_version_before_runs(fleet: list[Version], monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a worker that knows no limits nothing is lost; after a roll back it runs what waited in sub-queues.

    This version leads then, as a ``delayq transfer`` that stays for a while.
    """
    for name, short_s in (("LOOK_S", 0.1), ("QUEUES_S", 0.1), ("UNCONSUMED_S", 1.0)):
        monkeypatch.setattr(turns, name, short_s)
    before, now = fleet
    proj = before.proj
    key = {"headers": {LIMIT_HEADER: "account:7"}}
    with proj.connection() as connection:
        channel = connection.default_channel
        leader = TransferWorker(lambda: connect_store(channel, channel.separate_pool()))
        leader.start()
        try:
            until(lambda: channel.store.leases.leader() is not None)
            both = [now.worker(), before.worker()]
            channel.store.part(LimitStore).declare({"account": Limit(running=1)}, ["celery"])
            wanted = [f"{version.name} {n}" for version in fleet for n in range(20)]
            for name in wanted:
                (now if name.startswith("now") else before).send(("record", [name], key))
            until(lambda: values_of(proj) == sorted(wanted), what="each runs once, in whichever worker")
            both[1].stop()
            now.send(*(("hang_once", [f"held {n}"], key) for n in range(3)))
            proj.await_runs(1, name="hang_once")
            until(lambda: channel.store.fetching.limited(["celery"]) == [2])
            both[0].kill()
            before.worker()
            held = [f"held {n}" for n in range(3)]
            until(lambda: {*held} <= {*values_of(proj)}, what="all run without limits")
            assert channel.store.fetching.size("celery") == 0
        finally:
            leader.stop(20)
