import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support import ROOT

#: Runs in the clean environment, away from the checkout.
SCRIPT = """
import kombu_delayq, celery_ext.cli
from kombu_delayq import InvalidOptions, hooks, scripts
from kombu_delayq.store.types import Offer
from kombu_delayq.store import DelayStore
from celery_ext.demo.private_redis import PrivateRedis
from importlib.metadata import entry_points

assert "site-packages" in kombu_delayq.__file__, kombu_delayq.__file__
assert scripts.directory().is_relative_to(kombu_delayq.__path__[0]), scripts.directory()
assert [e.name for e in entry_points(group="celery.commands") if e.dist.name == "kombu-delayq"] == ["delayq"]
found = {e.name: e for e in entry_points(group="kombu_delayq.hooks")}
del found["journal"]
assert sorted(e.load().__name__ for e in found.values()) == ["begin", "parse"]
try:
    hooks.make_journaled_store()
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


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_wheel_works_in_a_clean_environment(tmp_path: Path) -> None:
    """The built wheel, installed where nothing else is, has its Lua files, types, commands and entry points.

    A journal says which extra it needs.
    """

    def run(*command: str | Path) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT)
    [wheel] = tmp_path.glob("*.whl")
    page = "celery_ext/serve/page"
    wanted = {f"{page}/templates/base.html", f"{page}/static/page.js", f"{page}/static/uplot/LICENSE"}
    assert wanted <= set(ZipFile(wheel).namelist())
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[embedded]")
    assert run(python, "-c", SCRIPT).strip() == "good"
    assert (next((tmp_path / "venv").glob("lib/*/site-packages")) / "kombu_delayq" / "py.typed").is_file()
    assert "Show each queue's delayed" in run(tmp_path / "venv" / "bin" / "delayq", "--help")
