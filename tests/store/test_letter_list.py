"""``LetterList``: dead letters are read page by page while letters leave, and come, before the next page."""

from collections.abc import Callable
from functools import partial

import pytest

from celery_ext.dead_letters.letter_list import LetterList, digest_of
from celery_ext.dead_letters.store import LetterStore
from kombu_delayq.store import DelayStore

LETTERS = [b"%03d" % number for number in range(300)]


def letters_of(store: DelayStore, *messages: bytes) -> LetterList:
    """Puts letters into the list, the oldest first."""
    store.client.lpush("dead", *messages)
    return LetterList(partial(store.part(LetterStore).page, "dead"))


def drop(*numbers: int) -> Callable[[DelayStore], object]:
    return lambda store: [store.client.lrem("dead", 1, LETTERS[number]) for number in numbers]


@pytest.mark.parametrize(
    ("change", "behind"),
    [
        pytest.param(drop(), LETTERS[200:], id="nothing"),
        pytest.param(drop(0, 50, 199), LETTERS[200:], id="some, and the last one that was read"),
        pytest.param(drop(*range(200)), LETTERS[200:], id="all that were read"),
        pytest.param(drop(*range(150, 250)), LETTERS[250:], id="some that were read, and the next ones"),
        pytest.param(drop(*range(250)), LETTERS[250:], id="all that were read, and the next ones"),
        pytest.param(drop(*range(300)), [], id="all"),
        pytest.param(lambda store: store.client.lpush("dead", b"new"), [*LETTERS[200:], b"new"], id="one comes"),
    ],
)
def test_reading_goes_on_where_it_was(
    store: DelayStore, change: Callable[[DelayStore], object], behind: list[bytes]
) -> None:
    """The next pages have all that was not read and is still there, once each."""
    letters = letters_of(store, *LETTERS)
    pages = letters.rest()
    assert next(pages) + next(pages) == LETTERS[:200]
    change(store)
    assert [letter for page in pages for letter in page] == behind
    if behind:
        assert store.part(LetterStore).page("dead", letters.at - 1, 1) == [behind[-1]]


def test_letters_that_come_before_hide_none(store: DelayStore) -> None:
    """Letters that a consumer gives back stand before all others: some are read again, and none is passed over."""
    letters = letters_of(store, *LETTERS)
    pages = letters.rest()
    next(pages)
    store.client.rpush("dead", b"back", b"back too")
    assert [letter for page in pages for letter in page] == LETTERS[98:]


def test_equal_letters_are_all_read(store: DelayStore) -> None:
    """Nobody makes letters of the same bytes, but if there are some, reading comes to its end."""
    twins = [b"a", b"b", b"b", b"a", b"c", b"a"] * 5
    assert [letter for page in letters_of(store, *twins).rest(2) for letter in page] == twins


@pytest.mark.parametrize(
    ("position", "gone", "first"),
    [(120, (), 120), (120, (0, 1), 120), (120, (120,), 0), (299, (), 120), (20_000, (), 0)],
)
def test_a_cursor_begins_with_its_letter(store: DelayStore, position: int, gone: tuple[int, ...], first: int) -> None:
    """The letter is found where it was, or not far before; if it has left, the list begins anew."""
    letters = letters_of(store, *LETTERS)
    drop(*gone)(store)
    letters.begin(position, digest_of(LETTERS[120]))
    assert [letter for page in letters.rest() for letter in page] == [
        letter for number, letter in enumerate(LETTERS) if number >= first and number not in gone
    ]
