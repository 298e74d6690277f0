"""How large the package is, beside stock Celery: on the disk, when it is imported, and in memory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution, requires
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from packaging.requirements import Requirement

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.app import BROKER, OURS, TRANSPORT
from tests.bench.targets.consume import STOCK, TAKE, TRANSPORTS, WARM, running
from tests.bench.targets.report import Figure
from tests.support import ROOT

#: What stock Celery on Redis imports for its transport.
STOCKS = "kombu.transport.redis"
#: Prints the CPU time of an import, in ms.
IMPORT = "from time import process_time as now; at = now(); import {}; print((now() - at) * 1000)"
#: Prints the resident memory of a process that has published a task, in MB.
PUBLISH = """
import psutil
from tests.bench.targets.app import TASK, app
app.tasks[TASK].delay(0.0)
print(psutil.Process().memory_info().rss / 1e6)
"""


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Builds the wheel, and starts processes of each kind in turns."""
    with TemporaryDirectory(prefix="delayq-size-") as directory:
        command = [sys.executable, "-m", "build", "--wheel", "--outdir", directory, ROOT]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        [wheel] = Path(directory).glob("*.whl")
        yield Figure("wheel", wheel.stat().st_size / 1e6, "MB")
        unpacked = sum(each.file_size for each in ZipFile(wheel).infolist())
    yield Figure("installed, without bytecode", unpacked / 1e6, "MB")
    stocks, ours = _needed("celery", "redis"), _needed("kombu-delayq")
    more = ours - stocks - {"kombu-delayq"}
    yield Figure("celery[redis] and what it needs", _size(stocks), "MB", note="without bytecode")
    yield Figure("what kombu-delayq needs beside it", _size(more), "MB", note=", ".join(sorted(more)))
    times: dict[str, list[float]] = {STOCKS: [], OURS.partition(":")[0]: []}
    for _ in range(5 if quick else 15):
        for module, found in times.items():
            found.append(_printed(IMPORT.format(module)))
    for module, found in times.items():
        yield Figure(f"CPU time to import {module}", median(found), "ms", note=f"median of {len(found)}, in turns")
    for kind, transport in TRANSPORTS.items():
        memory = _printed(PUBLISH, **{BROKER: server.url, TRANSPORT: transport})
        yield Figure(f"memory of a publisher, {kind}", memory, "MB")
    with running("threads", WARM) as workers:
        for kind in (STOCK, TAKE):
            yield Figure(
                f"memory of a worker, {kind}", workers[kind].rss_mb(), "MB", note=f"threads, after {WARM} tasks"
            )


def _printed(code: str, **environment: str) -> float:
    """Returns the number that a program prints."""
    command = [sys.executable, "-c", code]
    return float(subprocess.check_output(command, cwd=ROOT, env={**os.environ, **environment}))


def _needed(package: str, *extras: str) -> set[str]:
    """Returns a package and all that it needs here."""
    found: set[str] = set()
    left = [(package, extras)]
    while left:
        name, asked = left.pop()
        found.add(name.lower().replace("_", "-"))
        for one in map(Requirement, requires(name) or ()):
            markers = [{"extra": extra} for extra in asked or ("",)]
            if (one.marker is None or any(map(one.marker.evaluate, markers))) and one.name.lower() not in found:
                left.append((one.name, tuple(one.extras)))
    return found


def _size(packages: set[str]) -> float:
    """Returns how much packages take on the disk, in MB."""
    files = [file for name in packages for file in distribution(name).files or () if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in (Path(file.locate()) for file in files) if path.exists()) / 1e6
