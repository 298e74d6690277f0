"""What is built for a release: the source distribution, and the wheel that is made from it."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from kombu_delayq import __version__
from tests.support import ROOT

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("build")]

#: Runs in the clean environment, away from the checkout.
SCRIPT = """
import kombu_delayq, celery_ext.cli
from kombu_delayq import InvalidOptions, hooks
from kombu_delayq.redis import scripts
from kombu_delayq.store import DelayStore, Offer
from celery_ext.demo.private_redis import PrivateRedis
from importlib.metadata import entry_points

assert "site-packages" in kombu_delayq.__file__, kombu_delayq.__file__
assert scripts.directory().is_relative_to(kombu_delayq.__path__[0]), scripts.directory()
assert [e.name for e in entry_points(group="celery.commands") if e.dist.name == "kombu-delayq"] == ["delayq"]
found = {e.name: e for e in entry_points(group="kombu_delayq.hooks")}
del found["journal"]
assert sorted(e.load().__name__ for e in found.values()) == ["Pruning", "begin", "note_purge", "parse"]
try:
    hooks.store_class({"journal_url": "sqlite:////tmp/j.db"})
except InvalidOptions as error:
    assert "pip install 'kombu-delayq[journal]'" in str(error)
else:
    raise AssertionError("a journal needs an extra")
with PrivateRedis() as server:
    store = DelayStore(server.client())
    store.delivery.offer("q", Offer("id", "+0", 0, "body"))
    assert store.delivery.transfer("q").moved == 1
    assert server.client().lrange("q", 0, -1) == ["body"]
print("good")
"""


def run(directory: Path, *command: str | Path) -> str:
    """Runs a command away from the checkout. Returns what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built from it."""
    directory = tmp_path_factory.mktemp("built")
    run(directory, sys.executable, "-m", "build", "--outdir", directory, ROOT)
    [source], [wheel] = directory.glob("*.tar.gz"), directory.glob("*.whl")
    return source, wheel


def test_what_is_built_passes_the_checks_of_an_index(built: tuple[Path, Path]) -> None:
    """Metadata and README are valid without a warning, and the wheel has all modules and nothing beside them."""
    directory = built[0].parent
    run(directory, sys.executable, "-m", "twine", "--no-color", "check", "--strict", *built)
    check = Path(sys.executable).parent / "check-wheel-contents"
    run(directory, check, "--config", ROOT / "pyproject.toml", built[1])


def test_what_is_built_has_the_version_and_every_file(built: tuple[Path, Path]) -> None:
    """Both are named by the version, the wheel has each script, and the source has the tests and what they need."""
    source, wheel = built
    assert source.name == f"kombu_delayq-{__version__}.tar.gz"
    assert wheel.name == f"kombu_delayq-{__version__}-py3-none-any.whl"
    in_wheel = set(ZipFile(wheel).namelist())
    page = "celery_ext/serve/page"
    assert in_wheel >= {f"{page}/templates/base.html", f"{page}/static/page.js", f"{page}/static/uplot/LICENSE"}
    [metadata] = (ZipFile(wheel).read(name).decode() for name in in_wheel if name.endswith("/METADATA"))
    addresses = re.findall(r"\]\(([^)#]+)", metadata) + re.findall(r"^Project-URL: \w+, (.+)$", metadata, re.MULTILINE)
    assert addresses
    assert all(address.startswith("https://") for address in addresses), "links of the index's page lead nowhere"
    scripts = {f"kombu_delayq/{path.relative_to(ROOT)}" for path in (ROOT / "lua").rglob("*.lua")}
    assert scripts == {name for name in in_wheel if name.endswith(".lua")}
    with tarfile.open(source) as archive:
        in_source = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"LICENSE", "README.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", ".ci/run", "docs/changelog.md"}
    assert wanted | {str(Path(__file__).relative_to(ROOT)), "lua/transfer.lua"} <= in_source


def test_the_wheel_works_in_a_clean_environment(built: tuple[Path, Path], tmp_path: Path) -> None:
    """The wheel, installed where nothing else is, has its Lua files, types, commands and entry points.

    A journal says which extra it needs.
    """
    run(tmp_path, sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(tmp_path, python, "-m", "pip", "install", "--quiet", f"{built[1]}[embedded]")
    assert run(tmp_path, python, "-c", SCRIPT).strip() == "good"
    assert (next((tmp_path / "venv").glob("lib/*/site-packages")) / "kombu_delayq" / "py.typed").is_file()
    delayq = tmp_path / "venv" / "bin" / "delayq"
    assert "Show each queue's delayed" in run(tmp_path, delayq, "--help")
    assert __version__ in run(tmp_path, delayq, "--version")
    assert run(tmp_path, delayq, "doctor", "--explain", "DelayqNoLeader").startswith("## DelayqNoLeader")
    assert "# Supported versions" in run(tmp_path, delayq, "doctor", "--explain", "compatibility")
