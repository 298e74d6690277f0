"""``saferepr`` shows arguments as Celery's ``saferepr`` does."""

from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

from celery.utils.saferepr import saferepr
from hypothesis import given
from hypothesis import strategies as st

from celery_ext.publish.write import saferepr as fast_saferepr

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.decimals()
SCALARS |= (
    st.dates() | st.datetimes() | st.datetimes(timezones=st.sampled_from([UTC, ZoneInfo("Asia/Tokyo")])) | st.uuids()
)
VALUES = st.recursive(SCALARS, lambda each: st.lists(each) | st.dictionaries(st.text(), each) | st.tuples(each, each))
ARGUMENTS = st.lists(SCALARS) | st.lists(VALUES).map(tuple) | st.dictionaries(st.text() | st.integers(), VALUES)


@given(ARGUMENTS, st.sampled_from([0, 1, 3]), st.integers(1, 80))
def test_arguments_are_shown_as_celery_shows_them(arguments: Any, levels: int, most: int) -> None:
    """Whatever the arguments, where they are cut off, and how deep they are shown, it is Celery's text."""
    assert fast_saferepr(arguments, most, levels) == saferepr(arguments, most, levels)
