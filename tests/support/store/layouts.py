"""The two layouts: which are tested, marks for tests of one layout, and the other one of a store."""

import os

import pytest

from kombu_delayq.options import LAYOUTS
from kombu_delayq.store import DelayStore

#: The layouts that tests run in: both, unless the environment says less.
TESTED = os.environ.get("DELAYQ_LAYOUTS", " ".join(LAYOUTS)).split()
#: For a test of something that only one layout has.
hash_only = pytest.mark.parametrize("layout", ["hash"])
redisson_only = pytest.mark.parametrize("layout", ["redisson"])


def other_layout(store: DelayStore) -> str:
    """Returns the layout that is not the store's own."""
    [other] = {*LAYOUTS} - {store.layout}
    return other
