"""What Celery itself tests of its worker, with our consumer and strategy in the place of Celery's."""

import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = pytest.mark.wide

ROOT = Path(__file__).parents[3]
#: Puts ours in the place of Celery's in whatever process imports it.
OURS = "tests.support.workers.celerys_tests"


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_all_tests_of_celerys_worker_pass(tmp_path: Path) -> None:
    """Those of the version that is installed, from its source distribution."""
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    celery = f"celery=={version('celery')}"
    subprocess.run([*download, "--dest", tmp_path, celery], check=True)
    [archive] = tmp_path.glob("celery-*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    [source] = tmp_path.glob("celery-*/")
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", OURS, "-p", "no:django", "t/unit/worker"],
        cwd=source,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert tested.returncode == 0, tested.stdout[-5000:]
    assert " passed" in tested.stdout
