"""``ack.lua``: removes messages from those that consumers hold."""

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from tests.support.store.consuming import INDEX, ME, UNACKED, fetch, lives
from tests.support.store.keyspace import KEYS, contents, refuses_a_key_of_the_wrong_type


@pytest.fixture
def layout() -> str:
    """Consuming does not regard the layout."""
    return "hash"


def held(store: DelayStore, count: int) -> list[str]:
    """Takes so many messages. Returns their tags."""
    lives(store)
    store.client.lpush("q", *map(str, range(count)))
    return [taken.tag for taken in fetch(store, count)]


def test_an_acknowledged_message_is_gone(store: DelayStore) -> None:
    """The tags leave both of kombu's keys, and all others stay."""
    tags = held(store, 3)
    assert store.fetching.ack(tags[:2], "q") == []
    assert contents(store.client)[b"unacked:{q}"] == {f"{ME}.3".encode(): b'[2,"","q"]'}
    assert [tag for tag, _ in contents(store.client)[b"unacked_index:{q}"]] == [f"{ME}.3".encode()]


def test_tags_that_were_held_no_more_are_answered(store: DelayStore) -> None:
    """Only the first acknowledgement of a tag finds it; the others are told which tags they did not find."""
    first, second = held(store, 2)
    assert store.fetching.ack([first], "q") == []
    assert store.fetching.ack([first, second, "unknown", "\udcff"], "q") == [first, "unknown", "\udcff"]
    assert not store.client.exists(INDEX, UNACKED)


def test_many_tags_at_once(store: DelayStore) -> None:
    """Any number of tags is acknowledged, page by page."""
    tags = held(store, 1000)
    assert store.fetching.ack(tags, "q") == []
    assert not store.client.exists(INDEX, UNACKED)
    assert store.fetching.ack(tags, "q") == tags


def test_its_command_can_be_read_later(store: DelayStore) -> None:
    """The command by SHA and the one with the script's text do what ``ack`` does, and their reply is read apart."""
    first, second = held(store, 2)
    for tag, by_text in ((first, True), (second, False)):
        for missing in ([], [tag]):
            reply = store.client.execute_command(*store.fetching.ack_command([tag], "q", by_text=by_text))
            assert store.fetching.missing(reply) == missing


@pytest.mark.parametrize("key", [INDEX, UNACKED])
def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore, key: str) -> None:
    """Where somebody else's key is in the way, the error names it, and no message is removed."""
    tags = held(store, 2)
    refuses_a_key_of_the_wrong_type(store, key, lambda: store.fetching.ack(tags, "q"))


def test_a_full_redis_takes_acknowledgements() -> None:
    """A Redis that refuses every other write removes what is acknowledged."""
    with PrivateRedis() as server, redis.Redis(port=server.port) as client:
        tags = held(store := DelayStore(client, KEYS), 2)
        client.config_set("maxmemory", 1)
        assert store.fetching.ack(tags, "q") == []
        assert not client.exists(INDEX, UNACKED)
