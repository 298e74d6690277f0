"""``promote`` with tables of Delta Lake, whose releases follow those of Spark: ``pytest -m delta``."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from tests.support import ROOT
from tests.support.spark.jobs import delayed

#: The last Spark that Delta Lake has a release for.
PYSPARK = "pyspark==4.2.1"
POM = ROOT / "tests" / "support" / "spark" / "delta" / "pom.xml"
#: How long pip and Maven may take, in s.
LOAD_S = 600


@pytest.fixture(scope="session")
def delta(java: None, pytestconfig: pytest.Config) -> Path:
    """Directory with ``jars`` and, in ``python``, the Spark that they fit to; both are loaded once."""
    if "delta" not in str(pytestconfig.getoption("markexpr")):
        pytest.skip("Delta Lake and a Spark for it have 500 MB; pytest -m delta loads them")
    if shutil.which("mvn") is None:
        pytest.skip("no mvn on the PATH")
    there = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kombu-delayq-tests" / "delta-4.4.0"
    mvn = [
        *("mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={there}/jars"),
        "-DincludeGroupIds=io.delta,io.unitycatalog",
    ]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(there / "python"), PYSPARK]
    for command, made in ((mvn, there / "jars"), (pip, there / "python")):
        if not made.is_dir():
            done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_S, check=False)
            if done.returncode:
                shutil.rmtree(made, ignore_errors=True)
                pytest.skip(f"{command[0]} cannot get Delta Lake or Spark: {(done.stdout + done.stderr).strip()[:200]}")
    return there


@pytest.mark.delta
@pytest.mark.timeout(1500)  # they are loaded
def test_promotion(delta: Path, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """Rows are sent once and removed by MERGE, those that come meanwhile by the next promotion; DELETE is a cancel."""
    given = {"directory": str(tmp_path), "url": redis_server.url, "jars": str(delta / "jars")}
    path = os.pathsep.join((str(delta / "python"), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.spark.delta.child", json.dumps(given)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("spark") == PYSPARK.partition("==")[2]
    # 40 and 41 come after the first hour was read: 40 stays, and 41 goes with the second hour.
    figures = [39, 40, [40], 1, 2, 0]
    assert found == {"by_path": figures, "by_name": figures}
    for queue in ("by_path", "by_name"):
        assert delayed(client, queue).keys() == {str(n) for n in range(42) if n not in (7, 8, 9)}
