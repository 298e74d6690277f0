"""The two layouts: marks for tests of one layout, and the other form of a store."""

import pytest

from kombu_delayq.options import LAYOUTS
from kombu_delayq.store import DelayStore

#: For a test of something that only one layout has.
hash_only = pytest.mark.parametrize("layout", ["hash"])
redisson_only = pytest.mark.parametrize("layout", ["redisson"])


def other_form(store: DelayStore) -> str:
    """Returns the layout that is not the store's own."""
    [other] = {*LAYOUTS} - {store.layout}
    return other
