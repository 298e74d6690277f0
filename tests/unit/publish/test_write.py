"""What messages of calls are made of: arguments as Celery shows them, ids, and another tag for a further attempt."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from celery.utils.saferepr import saferepr
from hypothesis import given
from hypothesis import strategies as st

from celery_ext.publish.write import Uuids, again
from celery_ext.publish.write import saferepr as fast_saferepr
from kombu_delayq.message import read, to_json
from kombu_delayq.store import Offer
from kombu_delayq.text import as_bytes

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


def test_threads_draw_ids_of_their_own() -> None:
    """Each of the ids that threads draw at once is a UUID of version 4, and none is drawn twice."""
    draw = Uuids().draw
    with ThreadPoolExecutor(4) as threads:
        drawn = [each for some in threads.map(lambda _: [draw() for _ in range(2_000)], range(4)) for each in some]
    assert len(set(drawn)) == 8_000
    assert {(str(UUID(each)), UUID(each).version) for each in drawn} == {(each, 4) for each in drawn}


def test_a_further_attempt_has_a_tag_of_its_own() -> None:
    """Only the delivery tag of a message that is due at once is another one; one that waits stays as it is."""
    message = {"body": "é", "properties": {"correlation_id": "an-id", "delivery_tag": "a-tag"}}
    offer = Offer("an-id", "", 0, to_json(message))
    found = read(as_bytes(again(offer).body))
    assert found["properties"].pop("delivery_tag") not in ("a-tag", None)
    assert found == {"body": "é", "properties": {"correlation_id": "an-id"}}
    assert again(offer._replace(due="1.0")) == offer._replace(due="1.0")
