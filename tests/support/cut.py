"""Which tests run when, as far as that follows from where they stand and what they reach.

`make test` leaves to `make test-all` what starts processes, what is of an extra, what compares with stock kombu, and
what breaks connections. A server of Redis is no such process. The contract is what another version of Celery, kombu or
redis-py, or another server, could do otherwise: it runs once with each.
"""

import inspect
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest

from tests.support import ROOT

#: Modules and functions that start a process.
_STARTERS = ("subprocess", "multiprocessing")
#: Methods of ``Proj`` that start one.
_OF_PROJ = {"worker", "celery", "program"}
#: Modules whose classes have methods that start processes, and others.
_KNOWN = ("tests.support.servers", "tests.support.workers.harness")
#: Folders that are left to `make test-all` as a whole, but for their journeys.
_WIDE = (
    "tests/spark",
    "tests/jvm",
    "tests/store/explore",
    "tests/store/redisson",
    "tests/integration/cluster",
    "tests/integration/connection",
    "tests/integration/consume/stock",
    "tests/integration/journal",
    "tests/integration/serve",
    "tests/integration/testing",
)
#: Folders of what is an extra, or needs several servers: the contract leaves out their journeys.
_EXTRAS = (
    "tests/spark",
    "tests/jvm",
    "tests/integration/cluster",
    "tests/integration/journal",
    "tests/integration/serve",
)
#: Folders and files that need a package which the environment of `make test` does not have.
_NEEDS = {
    "tests/spark": "pyspark",
    "tests/integration/serve/page": "playwright",
    "tests/integration/serve/api/test_schema.py": "schemathesis",
    "tests/integration/serve/mounts": "django",
}
_SCRIPTS = "tests/store/scripts"
#: Files and folders of the contract; so are all journeys, but those of an extra.
CONTRACT = (
    _SCRIPTS,
    *(f"tests/store/test_{name}.py" for name in ("full_memory", "leases", "memory", "races", "store", "wake")),
    *(f"tests/integration/connection/test_{name}.py" for name in ("acl", "script_flush")),
    *(f"tests/integration/consume/stock/plain/test_{name}.py" for name in ("drain_events", "giving_back", "order")),
    *(f"tests/integration/transport/test_{name}.py" for name in ("batch", "full_redis", "plain_kombu", "protocols")),
)


def is_missing(path: Path) -> bool:
    """Whether a folder or file of tests needs a package that is not installed."""
    package = _NEEDS.get(path.relative_to(ROOT).as_posix()) if path.is_relative_to(ROOT) else None
    return package is not None and find_spec(package) is None


def is_wide(item: pytest.Function) -> bool:
    """Whether a test is left to `make test-all`, unless it is a journey."""
    if item.path.relative_to(ROOT).as_posix().startswith(_WIDE):
        return True
    fixtures = [one.func for found in item._fixtureinfo.name2fixturedefs.values() for one in found]
    reached = [found for function in (item.function, *fixtures) for found in _reached(function)]
    if any(name.startswith(_STARTERS) for name, _ in reached):
        return True
    return "make_proj" in item.fixturenames and any(names & _OF_PROJ for _, names in reached)


def is_contract(item: pytest.Item) -> bool:
    """Whether a test is of the contract. Of the scripts' tests, lists of cases are left out: they vary what is ours."""
    where = item.path.relative_to(ROOT).as_posix()
    if where.startswith(_SCRIPTS):
        return "wrong_type" not in item.name and not _cases(item) - {"layout"}
    if where.startswith(CONTRACT):
        return "wrong_type" not in item.name
    return item.get_closest_marker("journey") is not None and not where.startswith(_EXTRAS)


def _cases(item: pytest.Item) -> set[str]:
    """Returns the names of what a test is given case by case."""
    return set(item.callspec.params) if isinstance(item, pytest.Function) and hasattr(item, "callspec") else set()


@cache
def _reached(function: FunctionType) -> list[tuple[str, frozenset[str]]]:
    """Returns each function and module of the tests that a function reaches: its name, and the names in its code."""
    seen: dict[object, tuple[str, frozenset[str]]] = {}
    left: list[object] = [function]
    while left:
        one = left.pop()
        one = inspect.unwrap(one) if callable(one) else one
        if one in seen:
            continue
        if isinstance(one, ModuleType):
            seen[one] = one.__name__, frozenset()
        elif isinstance(one, type) and one.__module__.startswith(_KNOWN):
            continue
        elif isinstance(one, type) and one.__module__.startswith("tests."):
            left += [member for member in vars(one).values() if isinstance(member, FunctionType)]
        elif isinstance(one, type):
            seen[one] = one.__module__, frozenset()
        elif isinstance(one, FunctionType) and one.__module__.startswith("tests."):
            names = _names(one.__code__)
            seen[one] = one.__module__, names
            left += [one.__globals__[name] for name in names if _is_code(one.__globals__.get(name))]
        elif isinstance(one, FunctionType):
            seen[one] = one.__module__, frozenset()
    return list(seen.values())


def _is_code(one: object) -> bool:
    return isinstance(one, FunctionType | ModuleType | type)


@cache
def _names(code: CodeType) -> frozenset[str]:
    """Returns the names of globals and attributes that a function uses."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return frozenset(code.co_names).union(*inner)
