"""What mypy says to users who have ``celery-types``: what is right passes, and what is wrong is an error."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.pages import blocks

PAGE = ROOT / "docs/reference/api.md"

#: A comment ``# error: TEXT`` says what the line is refused for. All other lines are right.
USES = """
import asyncio
from datetime import datetime, timezone

from celery import Celery
from celery.result import AsyncResult

import celery_ext
from celery_ext import Call, DelayChain, asend, asend_many, cancel, count, get, reschedule, send_many
from celery_ext.typing import CallOptions, SharedOptions, Task, TaskOptions

app = Celery("shop", task_cls=Task)
plain = Celery("plain")
celery_ext.install(app, fast_publish=True)


@app.task(**TaskOptions(delay_chain=DelayChain.parse("4m")), autoretry_for=(OSError,))
def remind(order: int) -> None: ...


@app.task(bind=True, **TaskOptions(dead_letter_on="failure", dead_letter_queue="undelivered"))
def notify(self: Task, order: int) -> None:
    raise self.retry(countdown=3)


@app.task(**TaskOptions(limit=("account", "order")))
def export(order: int) -> None: ...


wrong: TaskOptions = {"delay_chian": "4m"}  # error: Extra key "delay_chian"
never = TaskOptions(dead_letter_on="sometimes")  # error: Incompatible types
number = TaskOptions(delay_chain=240)  # error: Incompatible types

sent: AsyncResult[object] = remind.apply_async((1,), delay_level=2, queue="mail", priority=3)
remind.apply_async([1], {"a": 2}, eta=datetime.now(timezone.utc), delay_chain=DelayChain.parse("4m"))
export.apply_async((1,), limit="account:7")
send_many(app, export, [Call((1,), limit="account:7")], limit="")
export.apply_async((1,), limit=7)  # error: incompatible type "int"
remind.apply_async((1,), delay_chain=4)  # error: incompatible type "int"
remind.apply_async((1,), delay_levle=2)  # error: Unexpected keyword argument "delay_levle"
notify.apply_async((1,), countdown="3")  # error: incompatible type "str"

send_many(app, remind, [Call((1,), countdown=3)], queue="mail", delay_chain="4m")
send_many(plain, "shop.remind", (Call((n,)) for n in range(3)), delay_level=1)
send_many(app, remind, [(1,)])  # error: incompatible type "tuple[int]"
send_many(app, remind, [], task_id="one")  # error: Unexpected keyword argument "task_id"
shared: SharedOptions = {"expires": 3600.0, "delay_level": 1}
one: CallOptions = {"task_id": "one", "expires": 3600.0}
remind.apply_async((1,), **one)
send_many(app, remind, [], **shared)

outcome: str = cancel(app, sent)
outcomes: dict[str, celery_ext.waiting.by_id.Outcome] = cancel(plain, ["a", sent])
cancel(app, 3)  # error: No overload variant


async def work() -> None:
    result = await asend(app, remind, (1,), delay_level=2, task_id="one")
    await asend(app, "shop.remind", [1], countdown=3.5)
    await asend(app, remind, (1,), delay="3s")  # error: Unexpected keyword argument "delay"
    await asend_many(app, remind, [Call()], countdown=3)
    moved: str = await asyncio.to_thread(reschedule, app, result, countdown=3)


waiting: int = count(app, "mail")
text: str = count(app)  # error: Incompatible types in assignment
found = get(app, "a")
print(found.due)  # error: has no attribute "due"


asyncio.run(work())
"""


#: What mypy knows of Celery is the same in each of these tests, so they run in one process.
pytestmark = [pytest.mark.xdist_group("types")]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where mypy keeps what it knows."""
    return tmp_path_factory.mktemp("cache")


def mypy(code: str, directory: Path, cache: Path) -> dict[int, str]:
    """Returns the errors of ``mypy --strict`` by line, from 1."""
    (directory / "uses.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}", "uses.py"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[int, str] = {}
    for path, line, text in re.findall(r"^(\S+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE):
        assert path == "uses.py", done.stdout
        found[int(line)] = found.get(int(line), "") + text
    return found


def check(code: str, directory: Path, cache: Path) -> None:
    """Compares the errors with the comments of the code."""
    expected = {
        number: line.partition("# error: ")[2]
        for number, line in enumerate(code.splitlines(), 1)
        if "# error: " in line
    }
    found = mypy(code, directory, cache)
    assert found.keys() == expected.keys(), found
    assert {line: text for line, text in expected.items() if text not in found[line]} == {}, found


def test_a_wrong_option_is_an_error(tmp_path: Path, cache: Path) -> None:
    """In calls, tasks, ``send_many`` and the async forms a wrong name or type is an error, and what is right passes."""
    check(USES, tmp_path, cache)


def test_the_page_about_types_is_right(tmp_path: Path, cache: Path) -> None:
    """Its code passes, but for the lines that it says are errors."""
    kinds = [block for block in blocks(PAGE, "python") if "DjangoTask" not in block]
    check("\n".join(kinds), tmp_path, cache)


def test_the_example_for_fastapi_is_right(tmp_path: Path, cache: Path) -> None:
    """Its code passes, with an app whose tasks have our options."""
    for name in ("main.py", "tasks.py"):
        shutil.copy(ROOT / "docs/examples/fastapi" / name, tmp_path)
    assert mypy("import main\n", tmp_path, cache) == {}


def test_the_class_for_django_is_right(tmp_path: Path, cache: Path) -> None:
    """It has ``delay_on_commit`` and takes our options."""
    [block] = [block for block in blocks(PAGE, "python") if "DjangoTask" in block]
    uses = "@app.task\ndef remind() -> None: ...\n\n\nremind.delay_on_commit()\nremind.apply_async(delay_level=3)\n"
    check(f"from celery import Celery\n\n{block}\n\n{uses}", tmp_path, cache)
