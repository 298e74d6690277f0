"""``ack.lua``: removes messages from those that consumers hold."""

from kombu_delayq.store import DelayStore
from tests.support.store.consuming import INDEX, ME, UNACKED, fetch, lives
from tests.support.store.keyspace import contents


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
