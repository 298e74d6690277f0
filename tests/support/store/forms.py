"""The two forms of backup: marks for tests of one form, and the other form of a store."""

import pytest

from kombu_delayq.options import BACKUPS
from kombu_delayq.store import DelayStore

#: For a test of something that only one form has.
hash_only = pytest.mark.parametrize("backup", ["hash"])
list_only = pytest.mark.parametrize("backup", ["list"])


def other_form(store: DelayStore) -> str:
    """Returns the form of backup that is not the store's own."""
    [other] = {*BACKUPS} - {store.backup}
    return other
