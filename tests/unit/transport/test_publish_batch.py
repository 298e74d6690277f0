"""How a publish batch is cut into calls of the offer script."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kombu_delayq.publish_batch import MAX_BYTES, MAX_OFFERS, _parts
from kombu_delayq.store.types import Offer


class Sized(str):
    """A body that only says how long it is."""

    __slots__ = ("length",)

    def __new__(cls, length: int) -> "Sized":  # noqa: D102
        body = super().__new__(cls)
        body.length = length
        return body

    def __len__(self) -> int:
        return self.length


def offers_of(sizes: list[int]) -> list[Offer]:
    return [Offer(str(number), "0", 0, Sized(size)) for number, size in enumerate(sizes)]


SIZES = st.lists(
    st.integers(0, 100) | st.integers(MAX_BYTES - 10, MAX_BYTES + 10) | st.just(MAX_BYTES // 3), min_size=1
)


@given(SIZES)
def test_parts_hold_every_offer_once_in_order(sizes: list[int]) -> None:
    """Put together again, the parts are the batch."""
    offers = offers_of(sizes)
    assert [offer for part in _parts(offers) for offer in part] == offers


@given(SIZES)
def test_no_part_is_larger_than_the_bounds(sizes: list[int]) -> None:
    """A part has at least one message, at most MAX_OFFERS, and at most MAX_BYTES unless one message alone has more."""
    for part in _parts(offers_of(sizes)):
        assert 1 <= len(part) <= MAX_OFFERS
        assert sum(offer.size for offer in part) <= MAX_BYTES or len(part) == 1


@given(SIZES)
def test_parts_are_not_smaller_than_they_must_be(sizes: list[int]) -> None:
    """A part ends only where the next message would exceed a bound."""
    parts = _parts(offers_of(sizes))
    for part, following in itertools.pairwise(parts):
        size = sum(offer.size for offer in part)
        assert len(part) == MAX_OFFERS or size + following[0].size > MAX_BYTES


def test_small_messages_are_cut_by_number() -> None:
    """A thousand small messages make parts of MAX_OFFERS and a rest."""
    sizes = [len(part) for part in _parts(offers_of([10] * 1050))]
    assert sizes == [MAX_OFFERS] * (1050 // MAX_OFFERS) + [1050 % MAX_OFFERS]
