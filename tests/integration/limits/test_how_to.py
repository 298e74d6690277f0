"""The how-to on limits: its recipes run as they stand in the page."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

import celery_ext
from celery_ext.limits import LIMIT_HEADER
from celery_ext.testing.delayed_tasks import DelayedTasks, delayed_tasks
from kombu_delayq import options
from tests.support import ROOT
from tests.support.pages import blocks

RECIPES = list(blocks(ROOT / "docs/how-to/limits.md", "python"))


@pytest.fixture
def tasks() -> Iterator[DelayedTasks]:
    """The tasks of the process, in memory."""
    with delayed_tasks("memory") as made:
        yield made


class App(Celery):
    """An app whose tasks are no tasks of other apps."""

    def task(self, *args: Any, **options: Any) -> Any:
        """Makes a task of this app alone."""
        return super().task(*args, **{**options, "shared": False})


def recipe(code: str, status: list[int]) -> Any:
    """Runs the code of a recipe. Returns its names, and ``seen``: the keys with which its tasks ran.

    Args:
        code: The code.
        status: What the API of the page answers, one after the other.
    """
    app, seen = App("how-to", set_as_current=False), list[str]()
    celery_ext.install(app)
    names: dict[str, Any] = {"__name__": "how_to", "app": app, "celery_ext": celery_ext}
    names["pay"] = lambda order_id: SimpleNamespace(status_code=status.pop(0))
    exec(code, names)  # noqa: S102
    assert options.parse(app.conf.broker_transport_options, ())[0].limits
    [task] = [each for name, each in names.items() if name in {"export", "charge", "convert"}]
    run = task.run

    def see(*args: Any) -> Any:
        seen.append((task.request.headers or {}).get(LIMIT_HEADER))
        return run(*args)

    task.run = see
    return SimpleNamespace(**names, seen=seen, task=task)


def test_the_recipes_give_their_tasks_keys(tasks: DelayedTasks) -> None:
    """A task of a recipe has the key of its arguments, or the one of all its calls, of a limit that is declared."""
    found = [recipe(code, [200, 200]) for code in RECIPES]
    for each, calls in zip(found, [[(7, "May"), (8, "May")], [(1,), (2,)], [(3, "a"), (3, "b")]], strict=True):
        for args in calls:
            each.task.delay(*args)
        tasks.run_due()
    assert [each.seen for each in found] == [["account:7", "account:8"], ["stripe"] * 2, ["tenant:3"] * 2]


def test_the_recipe_of_a_busy_api_rests(tasks: DelayedTasks) -> None:
    """After the answer 429 nothing of the key begins for 30 s, and then the same task does."""
    api = recipe(RECIPES[1], [429, 200, 200])
    api.task.delay(1)
    api.task.delay(2)
    tasks.advance("29s")
    assert [ran.args for ran in tasks.ran] == [(1,)]
    tasks.advance("1s")
    assert [(ran.args, ran.state) for ran in tasks.ran[1:]] == [((1,), "SUCCESS"), ((2,), "SUCCESS")]
    assert tasks.ran[0].limit == "stripe"


def test_the_recipe_of_fair_turns_lets_a_small_tenant_go_second(tasks: DelayedTasks) -> None:
    """Its call runs after the first one of the tenant that sent before it."""
    convert = recipe(RECIPES[2], []).task
    for tenant in (1, 1, 1, 2):
        convert.delay(tenant, "file")
    tasks.run_due()
    assert [ran.args[0] for ran in tasks.ran] == [1, 2, 1, 1]
