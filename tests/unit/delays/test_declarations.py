"""What a worker says when it starts of tasks that are declared with what has no effect."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from celery import Celery, Task, current_task

from celery_ext import install
from celery_ext.delays.install import may_retry, problems
from kombu_delayq import InvalidDeadLetter

CHAIN = "4m,1h"


def tell(url: str) -> None:
    """Fails at times."""


def give_up_later(task: Any) -> None:
    """Has the task that it is given tried again."""
    raise task.retry()


def in_the_background() -> None:
    """Has the task that runs tried again."""
    raise current_task.retry()


def retrying(function: Callable[..., Any]) -> Callable[..., Any]:
    """Has a function's task tried again when it fails."""

    @wraps(function)
    def run(self: Any, *args: Any) -> Any:
        try:
            return function(self, *args)
        except ValueError as error:
            raise self.retry(exc=error) from error

    return run


def declare(app: Celery, function: Callable[..., Any], **options: Any) -> Any:
    """Declares a task with a chain."""
    return app.tasks[app.task(function, name=function.__name__, **{"delay_chain": CHAIN, **options}).name]


def plain(order: str) -> None:
    """Never retries."""
    tell(order)


def bound(self: Any, order: str) -> None:
    """Never retries, and looks at its request."""
    tell(f"{order} {self.request.id}")
    self.seen = [each for each in order if each != self.name]


@pytest.mark.parametrize(("function", "bind"), [(plain, False), (bound, True)])
def test_a_chain_that_no_failure_waits_for_is_told(app: Celery, function: Any, bind: bool) -> None:
    """A task with a chain, without ``autoretry_for`` and without any retry in its code, is named."""
    install(app)
    declare(app, function, bind=bind)
    [complaint] = problems(app)
    assert complaint.startswith(f"delay_chain of task {function.__name__} has no effect: only a failure that autoretry")


class Again(Task):
    """A base class of a project."""

    def again(self) -> None:
        """Has the task tried again."""
        raise self.retry()


def by_hand(self: Any) -> None:
    """Retries."""
    raise self.retry()


def within(self: Any) -> None:
    """Retries in a function within."""
    (lambda: self.retry())()


def by_helper(self: Any) -> None:
    """Leaves it to another."""
    give_up_later(self)


def by_argument(self: Any) -> None:
    """Leaves it to whatever gets the task."""
    for each in (tell, self):
        each("x")


def by_base(self: Any) -> None:
    """Leaves it to its base class."""
    self.again()


def by_current_task() -> None:
    """Leaves it to what finds the task by itself."""
    in_the_background()


def by_its_name() -> None:
    """Leaves it to what gets the task by its name."""
    tell(by_its_name)  # type: ignore[arg-type]


@retrying
def decorated(self: Any) -> None:
    """Leaves it to its decorator."""


@pytest.mark.parametrize("function", [by_hand, within, by_helper, by_argument, by_base, decorated])
def test_no_false_alarm_of_a_bound_task(app: Celery, function: Any) -> None:
    """Nothing is said where a retry is in the task, its base class, a decorator or a helper, or may be in one."""
    install(app)
    assert may_retry(declare(app, function, bind=True, base=Again if function is by_base else None))
    assert list(problems(app)) == []


@pytest.mark.parametrize("function", [by_current_task, by_its_name])
def test_no_false_alarm_of_a_task_that_is_not_bound(app: Celery, function: Any) -> None:
    """Nor is anything said where such a task is found or given to others by its name."""
    install(app)
    assert may_retry(declare(app, function))


def test_no_false_alarm_where_the_source_has_changed(app: Celery, tmp_path: Path) -> None:
    """Nor of a task whose file was changed after its import, so that its source cannot be read any more."""
    file = tmp_path / "tasks.py"
    file.write_text('def changed(self):\n    """')
    [code] = (each for each in compile("def changed(self): pass", file, "exec").co_consts if isinstance(each, CodeType))
    install(app)
    assert may_retry(declare(app, FunctionType(code, {}), bind=True))


def test_no_alarm_of_other_tasks(app: Celery) -> None:
    """Nor of a task with ``autoretry_for``, or without a chain."""
    install(app)
    declare(app, plain, autoretry_for=(ValueError,))
    declare(app, bound, delay_chain=None)
    assert list(problems(app)) == []


def test_what_nobody_reads_is_told_of_an_app_without_install(app: Celery) -> None:
    """A worker on another transport whose app does not call ``install`` names the tasks whose options it ignores."""
    declare(app, plain)
    declare(app, tell, delay_chain=None, dead_letter_queue="failed")
    declare(app, in_the_background, delay_chain=None)
    [complaint] = problems(app)
    assert "of tasks plain, tell have no effect" in complaint
    assert "celery_ext.install(app)" in complaint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dead_letter_queue": "d", "dead_letter_on": "failures"}, "did you mean 'failure'?"),
        ({"dead_letter_queue": "d", "dead_letter_on": "Exhausted"}, "did you mean 'exhausted'?"),
        ({"dead_letter_queue": "d", "dead_letter_on": 3}, "not 3"),
        ({"dead_letter_on": "failure"}, "but no dead_letter_queue"),
    ],
)
def test_a_wrong_dead_letter_on_is_an_error_when_it_is_declared(
    app: Celery, options: dict[str, Any], words: str
) -> None:
    """What is neither word, or has no queue, is an error that names the task, and the word that was meant."""
    install(app)
    with pytest.raises(InvalidDeadLetter, match="task plain") as error:
        declare(app, plain, delay_chain=None, **options)
    assert words in str(error.value)


def test_a_wrong_setting_is_an_error_when_a_task_is_declared(app: Celery) -> None:
    """The setting is checked with the first task that has a dead letter queue."""
    app.conf.delayq_dead_letter_on = "failed"
    install(app)
    declare(app, tell)
    with pytest.raises(InvalidDeadLetter, match=r"the setting delayq_dead_letter_on.*did you mean 'failure'"):
        declare(app, plain, dead_letter_queue="d")


def test_annotations_may_say_when_and_where(app: Celery) -> None:
    """``task_annotations`` may give a task its queue, and say when it goes there."""
    app.conf.task_annotations = {"plain": {"dead_letter_queue": "d", "dead_letter_on": "failure"}}
    install(app)
    task = declare(app, plain)
    assert (task.dead_letter_queue, task.dead_letter_on) == ("d", "failure")
