"""Names that only a look at all keys finds, from call to call."""

from collections.abc import Iterator

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from kombu_delayq.store import queues
from kombu_delayq.store.queues import Names


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a whole look be followed by the next one at once."""
    monkeypatch.setattr(queues, "LOOK_SHARE", 1e9)


class Database:
    """Pages of names, and where a look fails."""

    def __init__(self, *pages: list[str]) -> None:
        self.pages: list[list[str]] = [*pages]
        self.fails_at: int | None = None

    def look(self) -> Iterator[list[str]]:
        """Yields the pages."""
        for at, page in enumerate(self.pages):
            if at == self.fails_at:
                raise RedisConnectionError("away")
            yield page


def test_each_call_goes_on_where_the_last_one_ended() -> None:
    """A name is known from its page on, and until a whole look has not found it any more."""
    database = Database(["a"], ["b"], ["c"])
    names = Names(database.look, lambda error: False)
    assert [names.look(0.0) for _ in range(4)] == [{"a"}, {"a", "b"}, {"a", "b", "c"}, {"a", "b", "c"}]
    database.pages = [["a"], []]
    assert [sorted(names.look(0.0)) for _ in range(3)][-1] == ["a"]
    assert names.look(60.0) == {"a"}


def test_a_node_that_is_away_takes_no_name_with_it() -> None:
    """What was found before stays known, and once the node is back, a whole look says what there is."""
    database = Database(["a"], ["b"])
    names = Names(database.look, lambda error: isinstance(error, RedisConnectionError))
    assert names.look(60.0) == {"a", "b"}
    database.fails_at = 1
    assert [names.look(60.0) for _ in range(3)] == [{"a", "b"}] * 3
    database.fails_at, database.pages = None, [["a"]]
    assert names.look(60.0) == {"a"}


def test_any_other_error_is_raised() -> None:
    """The caller decides what it means; the next call looks anew."""
    database = Database(["a"], ["b"])
    database.fails_at = 1
    names = Names(database.look, lambda error: False)
    with pytest.raises(RedisConnectionError):
        names.look(60.0)
    database.fails_at = None
    assert names.look(60.0) == {"a", "b"}
