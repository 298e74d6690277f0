"""Messages as columns are the same messages, also as they go over the wire."""

from base64 import b64decode
from itertools import chain

import pytest

from celery_ext.spark.write.offers import OfferColumns
from celery_ext.spark.write.texts import column, in_base64
from kombu_delayq.redis import packed
from kombu_delayq.store import Offer

OFFERS = [Offer(f"i{n}" if n % 3 else f"ü{n}", str(n) if n % 2 else "", n % 10, "x" * n) for n in range(40)]


@pytest.mark.parametrize("part", [slice(None), slice(0), slice(7, 8), slice(5, 33), slice(39, None)])
def test_columns_are_a_sequence_of_messages(part: slice) -> None:
    """A slice has the messages of the same slice of a list, and each by its place."""
    found = OfferColumns.of_offers(OFFERS)[part]
    assert list(found) == OFFERS[part]
    assert [found[at] for at in range(len(found))] == OFFERS[part]
    assert found.size == sum(len(offer.body) for offer in OFFERS[part])


@pytest.mark.parametrize("part", [slice(None), slice(5, 33)])
def test_the_bytes_for_redis_are_those_of_the_arguments(part: slice) -> None:
    """A command with columns is, byte for byte, the one with the fields of all messages."""
    command = ("EVALSHA", "sha", 1, "key", "run")
    columns = OfferColumns.together([OfferColumns.of_offers(OFFERS)[part], OfferColumns.of_offers(OFFERS[:3])])
    expected = packed((), (*command, *chain(*OFFERS[part], *OFFERS[:3])))
    assert packed((), (*command, columns.packed())) == expected


@pytest.mark.parametrize(("size", "count"), [(1, 2), (3, 3), (4, 4), (10_000, 40)])
def test_messages_are_counted_until_they_have_a_size(size: int, count: int) -> None:
    """The last of them is the one that reaches the size, and without it all are counted."""
    assert OfferColumns.of_offers(OFFERS).first_with(size) == count


def test_base64_of_many_texts_reads_as_each_of_them() -> None:
    """Spaces at the end, which JSON does not see, are all that a column adds, and a slice begins where it begins."""
    texts = ["{}", '{"a": 1}', "[]", '"x"', "[1, 2]", "1"]
    for first in range(len(texts)):
        found = in_base64(column(texts).slice(first))
        assert [b64decode(text).decode().rstrip() for text in found.to_pylist()] == texts[first:]
