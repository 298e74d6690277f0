"""Which tests run when, as far as that follows from where they stand.

`make test` leaves to `make test-all` what starts processes, what is of an extra, what compares with stock kombu, and
what breaks connections, but for journeys. A server of Redis is no such process. The contract is what another version of
Celery, kombu or redis-py, or another server, could do otherwise: it runs once with each.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import ROOT

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
    "tests/integration/project",
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
    *(f"tests/store/test_{name}.py" for name in ("full_memory", "memory", "store", "wake")),
    *(f"tests/integration/connection/test_{name}.py" for name in ("acl", "script_flush")),
    *(f"tests/integration/consume/stock/plain/test_{name}.py" for name in ("drain_events", "giving_back", "order")),
    *(f"tests/integration/transport/test_{name}.py" for name in ("batch", "full_redis", "plain_kombu", "protocols")),
)


def is_missing(path: Path) -> bool:
    """Whether a folder or file of tests needs a package that is not installed."""
    package = _NEEDS.get(path.relative_to(ROOT).as_posix()) if path.is_relative_to(ROOT) else None
    return package is not None and find_spec(package) is None


def is_wide(path: Path) -> bool:
    """Whether a folder or file is left to `make test-all` as a whole. In others the tests have the mark ``wide``."""
    return path.relative_to(ROOT).as_posix().startswith(_WIDE)


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
