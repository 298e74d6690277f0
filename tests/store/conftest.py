"""A store in each layout."""

import pytest

from kombu_delayq.redis import scripts
from tests.support.lua.scripts import FORMS
from tests.support.store.fixtures import (
    client,
    ear,
    layout,
    make_store,
    own_server,
    plain_server,
    server,
    shared_server,
    store,
)
from tests.support.store.layouts import TESTED

__all__ = ["client", "ear", "layout", "make_store", "own_server", "plain_server", "server", "shared_server", "store"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test in both layouts, unless it is marked for one, or its script has the same text in both."""
    if "layout" not in metafunc.fixturenames:
        return
    if any("layout" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")):
        return
    package, _, operation = metafunc.module.__name__.rpartition(".test_")
    texts = {scripts.load(operation, layout).text for name, layout in FORMS if name == operation}
    one_text = package.endswith(".scripts") and len(texts) == 1
    metafunc.parametrize("layout", TESTED[:1] if one_text else TESTED, indirect=True)
