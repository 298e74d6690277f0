"""The record of runs that are published: a line of JSON each, with seed, versions and the sums of its ledger."""

import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kombu_delayq import __version__
from tests.bench.targets.report import machine
from tests.chaos.fleet.posts import Plan
from tests.chaos.report import reason
from tests.chaos.run import Outcome
from tests.support import ROOT

RECORD = ROOT / "docs" / "benchmarks" / "chaos.jsonl"
#: Servers, as a line of the record calls them, and how the table does.
SERVERS = {
    "plain": "one Redis",
    "journal": "one Redis, with a journal",
    "sentinel": "behind Sentinel",
    "cluster": "Redis Cluster",
}


def note(outcome: Outcome, directory: Path, path: Path) -> None:
    """Adds a line to a record.

    Args:
        outcome: What the run found.
        directory: Where its ledger is. Its sum is the SHA-256 of all files of it, in the order of their names.
        path: The record.
    """
    plan, ledger = outcome.plan, hashlib.sha256()
    for name in sorted(directory.glob("*.ledger")):
        ledger.update(name.read_bytes())
    found = Counter((finding.what, finding.by, reason(finding.why)) for finding in outcome.findings)
    line = {
        "servers": _servers(plan),
        "commit": subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, text=True).strip(),
        "date": datetime.now(UTC).date().isoformat(),
        "seed": plan.seed,
        "seconds": round(outcome.seconds["published"]),
        "rate": plan.rate,
        "every_s": plan.every_s,
        "versions": {"kombu-delayq": __version__, **machine()},
        "tasks": outcome.tasks,
        "runs_by": outcome.runs_by,
        "faults": outcome.faults,
        "wrong": outcome.wrong(),
        "findings": [[*key, count] for key, count in found.most_common()],
        "ledger_sha256": ledger.hexdigest(),
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def recorded(plan: Plan, path: Path) -> int:
    """Returns how many tasks a record has on a plan's servers."""
    return sum(line["tasks"]["confirmed"] for line in _read(path) if line["servers"] == _servers(plan))


def table(path: Path = RECORD) -> Iterator[tuple[str, ...]]:
    """Yields the rows of the table of all runs, one for each kind of servers, with a heading."""
    yield (
        "",
        "tasks",
        "runs",
        "killed",
        "other faults",
        "lost",
        "early",
        "stuck",
        "over a limit",
        "ran twice for a reason",
        "for none",
    )
    lines = [*_read(path)]
    for servers, title in SERVERS.items():
        of_kind = [line for line in lines if line["servers"] == servers]
        if of_kind:
            yield (title, *(f"{each:,}" for each in _sums(of_kind)))


def _sums(lines: list[dict[str, Any]]) -> Iterator[int]:
    faults, wrong, tasks = Counter[str](), Counter[str](), Counter[str]()
    doubles = 0
    for line in lines:
        faults.update(line["faults"])
        wrong.update(line["wrong"])
        tasks.update(line["tasks"])
        doubles += sum(count for what, _, _, count in line["findings"] if what == "double")
    yield from (tasks["confirmed"], tasks["runs"])
    killed = sum(count for kind, count in faults.items() if kind.startswith("kill"))
    yield from (killed, faults.total() - killed)
    yield from (wrong[what] for what in ("lost", "early", "stuck", "over a limit"))
    yield from (doubles - wrong["double without a reason"], wrong["double without a reason"])


def _read(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def _servers(plan: Plan) -> str:
    return next((name for name in ("sentinel", "cluster", "journal") if getattr(plan, name)), "plain")
