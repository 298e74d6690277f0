"""Finds tasks whose declaration has no effect: nobody reads it, or no failure would wait for the delay chain."""

import dis
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from celery_ext.delays.install import ATTRIBUTES, is_installed

if TYPE_CHECKING:
    from celery import Celery

#: Bytecode that uses an attribute of the object that was loaded just before.
_OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR")
#: Bytecode that may stand between the two, or that passes a name to an inner function, whose own code is searched, too.
_NO_USE = ("CACHE", "PUSH_NULL", "LOAD_CLOSURE")
#: The cell of a name that a function closes over, while the name has no value yet.
_EMPTY = CellType()

#: How many calls deep the functions that a task uses are searched.
DEPTH = 4


def problems(app: "Celery") -> Iterator[str]:
    """Yields a sentence or two for each way in which tasks of an app are declared without effect."""
    if not is_installed(app):
        if found := unread(app):
            yield (
                f"delay_chain and dead_letter_queue of {tasks_in_words(found)} have no effect: the app does not use "
                "the transport of kombu-delayq, and celery_ext.install(app) was not called where it is made"
            )
    elif idle := idle_chains(app):
        yield (
            f"delay_chain of {tasks_in_words(idle)} has no effect: only a failure that autoretry_for names, or that "
            "calls retry(), waits for its next step. Any other ends the task"
        )


def unread(app: "Celery") -> list[str]:
    """Returns the names of the tasks whose declarations nothing reads until ``celery_ext.install(app)`` is called."""
    return [task.name for task in own_tasks(app) if any(getattr(task, name, None) is not None for name in ATTRIBUTES)]


def idle_chains(app: "Celery") -> list[str]:
    """Returns the names of the tasks with a delay chain for which no failure waits."""
    return [
        task.name for task in own_tasks(app) if getattr(task, "delay_chain", None) is not None and not may_retry(task)
    ]


def own_tasks(app: "Celery") -> list[Any]:
    """Returns the tasks of an app, without those that Celery brings."""
    return [task for name, task in sorted(app.tasks.items()) if not name.startswith("celery.")]


def may_retry(task: Any) -> bool:
    """Whether the code of a task may retry it after a failure.

    In doubt it may: if the task passes itself on to other code, or is no Python function.
    """
    if getattr(task, "autoretry_for", None) or getattr(task, "retry_on_worker_lost", False):
        return True
    bound = isinstance(task.run, MethodType)
    run = task.run.__func__ if bound else task.run
    methods = [
        member
        for kind in type(task).__mro__
        if kind.__module__.partition(".")[0] not in ("builtins", "celery", "celery_ext")
        for member in vars(kind).values()
        if isinstance(member, FunctionType)
    ]
    if not isinstance(run, FunctionType):
        return True
    seen: set[CodeType] = set()
    return _passes_itself_on(run, bound) or any(_names_retry(function, DEPTH, seen) for function in [run, *methods])


def _names_retry(function: FunctionType, depth: int, seen: set[CodeType]) -> bool:
    """Whether a name such as ``retry`` is in a function, or in one that it uses."""
    if not depth or function.__code__ in seen:
        return False
    seen.add(function.__code__)
    names = {name for code in _nested_code(function.__code__) for name in code.co_names}
    if any("retry" in name.lower() for name in names):
        return True
    found = [function.__globals__.get(name) for name in names]
    found += [getattr(module, name, None) for module in found if isinstance(module, ModuleType) for name in names]
    found += [cell.cell_contents for cell in function.__closure__ or () if cell != _EMPTY]
    return any(_names_retry(used, depth - 1, seen) for used in found if isinstance(used, FunctionType))


def _passes_itself_on(run: FunctionType, bound: bool) -> bool:
    """Whether a task's function uses the task itself, not only its attributes: as first argument or by its name."""
    own = {run.__name__, *run.__code__.co_varnames[: int(bound)]}
    for code in _nested_code(run.__code__):
        steps = [step for step in dis.get_instructions(code) if step.opname not in _NO_USE]
        for step, after in zip(steps, [*steps[1:], None], strict=True):
            loaded = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            is_own = (
                step.opname.startswith("LOAD_") and "ATTR" not in step.opname and own.intersection(map(str, loaded))
            )
            if is_own and (after is None or after.opname not in _OF_ATTRIBUTES):
                return True
    return False


def _nested_code(code: CodeType) -> Iterator[CodeType]:
    """Yields the code of a function and of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_code(constant)


def tasks_in_words(names: list[str]) -> str:
    """Returns ``task a``, or ``tasks a, b``."""
    return f"task {names[0]}" if len(names) == 1 else f"tasks {', '.join(names)}"
