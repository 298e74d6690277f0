"""The two forms of backup, as tests tell them apart."""

import pytest

from kombu_delayq.options import BACKUPS
from kombu_delayq.store import DelayStore

#: For a test of what only one form has.
hash_only = pytest.mark.parametrize("backup", ["hash"])
list_only = pytest.mark.parametrize("backup", ["list"])


def other_form(store: DelayStore) -> str:
    """Returns the form of backup that is not the store's own."""
    [other] = {*BACKUPS} - {store.backup}
    return other
