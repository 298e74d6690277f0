"""The two layouts: which are tested, and marks for tests of one layout."""

import os

import pytest

from kombu_delayq.options import LAYOUTS

#: The layouts that tests run in: both, unless the environment says less.
TESTED = os.environ.get("DELAYQ_LAYOUTS", " ".join(LAYOUTS)).split()
#: For a test of something that only one layout has.
hash_only = pytest.mark.parametrize("layout", ["hash"])
redisson_only = pytest.mark.parametrize("layout", ["redisson"])
