"""What is built for a release: the source distribution, and the wheel that is made from it."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq import __version__
from tests.support import ROOT

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("build")]

#: An app, in the clean environment.
SHOP = """
import os
from celery import Celery
from celery_ext import install
app = Celery("shop", broker=os.environ["URL"], backend=os.environ["URL"])
app.conf.broker_transport = "kombu_delayq.transport:Transport"
install(app, periodic=True)
@app.task
def add(a, b):
    return a + b
"""
#: Runs in the clean environment, away from the checkout: a task in a worker, and then each command.
SCRIPT = """
import json, os
from importlib.metadata import entry_points
from celery_ext.cli import delayq
from click.testing import CliRunner
import kombu_delayq
from kombu_delayq import InvalidOptions, hooks
from kombu_delayq.redis import scripts
from shop import add

assert "site-packages" in kombu_delayq.__file__, kombu_delayq.__file__
assert scripts.directory().is_relative_to(kombu_delayq.__path__[0]), scripts.directory()
assert [e.name for e in entry_points(group="celery.commands") if e.dist.name == "kombu-delayq"] == ["delayq"]
found = {e.name: e for e in entry_points(group="kombu_delayq.hooks")}
del found["journal"]
names = ["Pruning", "Turns", "begin", "note_purge", "note_purge", "parse"]
assert sorted(e.load().__name__ for e in found.values()) == names
try:
    hooks.store_class({"journal_url": "sqlite:////tmp/j.db"})
except InvalidOptions as error:
    assert "pip install 'kombu-delayq[journal]'" in str(error)
else:
    raise AssertionError("a journal needs an extra")

assert add.apply_async((1, 2), countdown=0.5).get(timeout=60) == 3
waiting = [add.apply_async((1, 2), countdown=3600).id for _ in range(4)]
asked = set()

def run(*words, code=0, input=None):
    asked.add(words[0])
    done = CliRunner().invoke(delayq, ["-b", os.environ["URL"], *words], input=input)
    assert done.exit_code == code, (words, done.output, done.exception)
    return done.output

for words in (["status"], ["list"], ["count"], ["periodic", "list"], ["repair"], ["queues", "pause", "celery"]):
    run(*words)
run("doctor", code=1)
run("queues", "resume", "celery")
run("limits", "list")
run("show", waiting[0])
run("reschedule", "--yes", "--countdown", "2h", waiting[0])
run("cancel", "--yes", waiting[1])
run("run-now", "--yes", waiting[2])
kept = run("export", "celery")
run("cancel", "--yes", waiting[0], waiting[3])
run("import", input=kept)
assert json.loads(run("count", "--json")) == {"queue": "celery", "count": 2}
run("dead-letters", "list", "undelivered", code=1)
run("convert", "--to", "redisson", "celery")
for words in (["serve"], ["transfer", "--metrics-port", "0"]):
    assert "pip install 'kombu-delayq[" in run(*words, code=1)
run("journal", "--help")
run("demo", "--help")
run("tokens", "add", "ada", "--action", "read", "--file", "tokens.json")
assert asked == set(delayq.commands), asked ^ set(delayq.commands)
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


def test_the_wheel_works_in_a_clean_environment(
    built: tuple[Path, Path], tmp_path: Path, redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an extra and where nothing else is, a worker runs and each command does its work, or names its extra.

    The wheel has its Lua files, types and entry points.
    """
    run(tmp_path, sys.executable, "-m", "venv", tmp_path / "venv")
    there = tmp_path / "venv" / "bin"
    run(tmp_path, there / "python", "-m", "pip", "install", "--quiet", built[1])
    assert (next((tmp_path / "venv").glob("lib/*/site-packages")) / "kombu_delayq" / "py.typed").is_file()
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    monkeypatch.setenv("URL", redis_server.url)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    log = (tmp_path / "worker.log").open("w+")
    worker = subprocess.Popen(
        [there / "celery", "-A", "shop", "worker", "-c", "1"], cwd=tmp_path, stdout=log, stderr=log
    )
    try:
        (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
        assert run(tmp_path, there / "python", "script.py").strip() == "good", Path(log.name).read_text()
    finally:
        worker.terminate()
        worker.wait(60)
        log.close()
    delayq = there / "delayq"
    assert "Show each queue's delayed" in run(tmp_path, delayq, "--help")
    assert __version__ in run(tmp_path, delayq, "--version")
    assert run(tmp_path, delayq, "doctor", "--explain", "DelayqNoLeader").startswith("## DelayqNoLeader")
    assert "# Supported versions" in run(tmp_path, delayq, "doctor", "--explain", "compatibility")
