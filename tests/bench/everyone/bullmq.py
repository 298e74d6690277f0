"""BullMQ, on Node.js."""

import json
import shutil
import subprocess
from pathlib import Path

from tests.bench.contender import Contender

#: Its programs, and what ``npm ci`` installs there.
HERE = Path(__file__).parents[1] / "contenders" / "bullmq"
#: Jobs at once of a worker that is measured alone.
CONCURRENCY = "50"
PACKAGES = ("bullmq", "ioredis")
#: The major version of Node.js from which on ioredis runs.
NODE = 20


def _installed(package: str) -> Path:
    return HERE / "node_modules" / package / "package.json"


def _node() -> str:
    told = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    return told.strip().removeprefix("v")


def why_not() -> str | None:
    """Says what is missing, or returns None."""
    if shutil.which("node") is None:
        return "no node on the PATH"
    if int(_node().partition(".")[0] or 0) < NODE:
        return f"Node.js {_node()} is older than {NODE}"
    if not all(_installed(each).is_file() for each in PACKAGES):
        return "not installed: npm ci has not run"
    return None


def versions() -> dict[str, str]:
    """Returns the versions of what is installed, and of Node.js."""
    found = {each: str(json.loads(_installed(each).read_text())["version"]) for each in PACKAGES}
    return {**found, "node": _node()}


BULLMQ = Contender(
    name="BullMQ",
    versions=versions,
    producer=("node", str(HERE / "producer.mjs")),
    worker=("node", str(HERE / "worker.mjs")),
    consumers=("node", str(HERE / "worker.mjs")),
    alone=("node", str(HERE / "worker.mjs"), "1", CONCURRENCY),
    alone_settings=f"`concurrency: {CONCURRENCY}`",
    settings="a `Worker` with its defaults: one job at a time, and whenever it asks for one, the ids of up to 1,000 "
    "due jobs move; many idle workers share a process, each with its own connections",
    why_not=why_not,
)
