"""The two forms of backup, as tests tell them apart."""

import pytest

#: For a test of what only one form has.
hash_only = pytest.mark.parametrize("backup", ["hash"])
list_only = pytest.mark.parametrize("backup", ["list"])
