"""What tasks are declared with in vain: nobody reads it, or it can have no effect."""

import dis
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from celery_ext.dead_letters.bury import OLD_ATTRIBUTE
from celery_ext.delays.install import ATTRIBUTES, is_installed

if TYPE_CHECKING:
    from celery import Celery

#: What is done with an attribute of what was loaded just before.
_OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR")
#: What stands between; and what only hands a name to a function within, whose own code is looked at, too.
_NO_USE = ("CACHE", "PUSH_NULL", "LOAD_CLOSURE")
#: A name that a function closes over and that has no value yet.
_EMPTY = CellType()

#: How far the functions are followed that a task uses.
DEPTH = 4


def complaints(app: "Celery") -> Iterator[str]:
    """Yields what is wrong with the tasks of an app, a sentence or two each."""
    tasks = [task for name, task in sorted(app.tasks.items()) if not name.startswith("celery.")]
    if not is_installed(app):
        unread = [
            task.name
            for task in tasks
            if any(getattr(task, name, None) is not None for name in (*ATTRIBUTES, OLD_ATTRIBUTE))
        ]
        if unread:
            yield (
                f"delay_chain and dead_letter_queue of {_named(unread)} have no effect: the app does not use the "
                "transport of kombu-delayq, and celery_ext.install(app) was not called where it is made"
            )
        return
    idle = [task.name for task in tasks if task.delay_chain is not None and not may_retry(task)]
    if idle:
        yield (
            f"delay_chain of {_named(idle)} has no effect: only a failure that autoretry_for names, or that calls "
            "retry(), waits for its next step. Any other ends the task"
        )


def may_retry(task: Any) -> bool:
    """Whether a failure of a task may be followed by a retry, as far as can be told from its code.

    It may if it is not certain that it cannot: where the task hands itself on, or is no function of Python.
    """
    if getattr(task, "autoretry_for", None) or getattr(task, "retry_on_worker_lost", False):
        return True
    bound = isinstance(task.run, MethodType)
    run = task.run.__func__ if bound else task.run
    methods = [
        each
        for kind in type(task).__mro__
        if kind.__module__.partition(".")[0] not in ("builtins", "celery", "celery_ext")
        for each in vars(kind).values()
        if isinstance(each, FunctionType)
    ]
    if not isinstance(run, FunctionType):
        return True
    seen: set[CodeType] = set()
    return _hands_itself_on(run, bound) or any(_names_retry(each, DEPTH, seen) for each in [run, *methods])


def _names_retry(function: FunctionType, depth: int, seen: set[CodeType]) -> bool:
    """Whether a name such as ``retry`` is in a function, or in one that it uses."""
    if not depth or function.__code__ in seen:
        return False
    seen.add(function.__code__)
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    if any("retry" in name.lower() for name in names):
        return True
    found = [function.__globals__.get(name) for name in names]
    found += [getattr(module, name, None) for module in found if isinstance(module, ModuleType) for name in names]
    found += [cell.cell_contents for cell in function.__closure__ or () if cell != _EMPTY]
    return any(_names_retry(each, depth - 1, seen) for each in found if isinstance(each, FunctionType))


def _hands_itself_on(run: FunctionType, bound: bool) -> bool:
    """Whether the function of a task uses its task, as its first argument or by its name, for more than attributes."""
    code = run.__code__
    own = {run.__name__, *code.co_varnames[: int(bound)]}
    for each in _codes(code):
        steps = [step for step in dis.get_instructions(each) if step.opname not in _NO_USE]
        for step, after in zip(steps, [*steps[1:], None], strict=True):
            loaded = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            is_own = (
                step.opname.startswith("LOAD_") and "ATTR" not in step.opname and own.intersection(map(str, loaded))
            )
            if is_own and (after is None or after.opname not in _OF_ATTRIBUTES):
                return True
    return False


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yields the code of a function and of those within it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _named(names: list[str]) -> str:
    return f"task {names[0]}" if len(names) == 1 else f"tasks {', '.join(names)}"
