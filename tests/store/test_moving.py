"""``Moving``: messages go from queue to queue, each once, in both forms of backup and in hash slots."""

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from kombu_delayq.errors import InvalidQueueName
from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Offer, Waiting
from kombu_delayq.store.upkeep.moving import Move, Underway
from kombu_delayq.transfer.resuming import Resuming
from tests.support.slots import SLOTS
from tests.support.store.keyspace import FUTURE_MS, ODD_IDS, waiting


def moves_of(store: DelayStore, queue: str = "old") -> list[Move]:
    return [Move(one, (one.body or b"") + b" moved") for one in store.scan.browse(queue, count=1000).messages]


def shape(messages: list[Waiting]) -> list[tuple[float, int, bytes]]:
    return [(one.due_ms, one.priority, (one.body or b"").removesuffix(b" moved")) for one in messages]


def test_messages_keep_all_but_their_queue(store: DelayStore) -> None:
    """Due times, priorities, order and ids stay, also of messages that share an id, or are due in the same instant."""
    offers = [waiting(f"i{n:02}", FUTURE_MS + n // 5, priority=n % 3) for n in range(40)]
    store.delivery.offer("old", *offers, *(waiting("same", body=f"body {n}") for n in range(3)))
    store.delivery.offer("new", waiting("first", FUTURE_MS + 2))
    before, moves = store.scan.browse("old", count=1000).messages, moves_of(store)
    assert store.moving.move_to("old", "new", moves) == ["moved"] * 43
    assert store.queues.size("old") == 0
    after = [one for one in store.scan.browse("new", count=1000).messages if one.id != "first"]
    assert shape(after) == shape(before)
    assert {one.id for one in after} >= {offer.id for offer in offers}
    assert len(store.lookup.get(["new"], ["same"])["same"]) == 3
    assert all((one.body or b"").endswith(b" moved") for one in after)
    assert "new" in store.queues.names()


@pytest.mark.skipif(not SLOTS, reason="on a plain server any name will do")
def test_no_message_leaves_for_a_queue_that_cannot_be(store: DelayStore) -> None:
    """A name that Redis Cluster has no slot for is refused before messages are on their way."""
    store.delivery.offer("old", waiting("a"))
    with pytest.raises(InvalidQueueName):
        store.moving.move_to("old", "new{", moves_of(store))
    assert store.queues.size("old") == 1
    assert store.moving.move_to("old", "new", moves_of(store)) == ["moved"]


@pytest.mark.parametrize("identity", ODD_IDS)
def test_any_id_moves(store: DelayStore, identity: str) -> None:
    """An id of any bytes moves, and is found there."""
    store.delivery.offer("old", waiting(identity))
    assert store.moving.move_to("old", "new", moves_of(store)) == ["moved"]
    assert store.lookup.get(["old", "new"], [identity])[identity][0].queue == "new"


def test_only_what_is_as_it_was_read_moves(store: DelayStore) -> None:
    """A message that was changed or has left stays as it is; a second move of the same message does nothing."""
    store.delivery.offer("old", *(waiting(name) for name in ("body", "due", "gone", "same")))
    moves = {move.message.id: move for move in moves_of(store)}
    store.lookup.reschedule("old", [Change(moves["body"].message, FUTURE_MS, b"another body")])
    store.lookup.reschedule("old", [Change(moves["due"].message, FUTURE_MS + 1, moves["due"].message.body or b"")])
    store.lookup.cancel(["old"], ["gone"])
    asked = [moves[name] for name in ("body", "due", "gone", "same", "same")]
    assert store.moving.move_to("old", "new", asked) == ["changed", "changed", "not_delayed", "moved", "not_delayed"]
    assert [one.id for one in store.scan.browse("new").messages] == ["same"]
    assert {one.id for one in store.scan.browse("old").messages} == {"body", "due"}


def test_a_move_that_died_half_way_is_finished_once(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """In hash slots a move has steps: whoever dies behind one, each message is in one queue at the end.

    On a plain server there is one step, and nothing to finish.
    """
    for died_after in range(4):
        store.delivery.offer("old", *(waiting(f"{died_after} {n}") for n in range(5)))
        moves, steps = moves_of(store), 0
        run = store.moving._client.run

        def dying(operation: str, *args: object, died_after: int = died_after, run: object = run) -> object:
            nonlocal steps
            if steps >= died_after:
                raise RedisConnectionError("died")
            steps += 1
            return run(operation, *args)  # type: ignore[operator]

        with monkeypatch.context() as patched:
            patched.setattr(store.moving._client, "run", dying)
            try:
                store.moving.move_to("old", "new", moves)
            except RedisConnectionError:
                assert store.keys.slots
        store.moving.resume("old")
        store.moving.resume("old")
        store.moving.move_to("old", "new", moves_of(store))
        assert store.queues.size("old") == 0
        assert sorted(one.id for one in store.scan.browse("new", count=1000).messages) == sorted(
            f"{died} {n}" for died in range(died_after + 1) for n in range(5)
        )
        assert not store.client.exists(store.keys.moving("old"))


def test_a_message_that_came_late_to_its_end_is_not_brought_again(store: DelayStore) -> None:
    """In hash slots: who reads a move that another finishes meanwhile brings no message a second time."""
    if not store.keys.slots:
        pytest.skip("in hash slots only")
    store.delivery.offer("old", waiting("i"))
    [move] = moves_of(store)
    store.moving.depart("old", "new", [move], "m1")
    rows = store.client.lrange(store.keys.moving("old"), 2, -1)
    assert store.moving.resume("old") == 1
    store.lookup.cancel(["new"], ["i"])
    store.moving.arrive("old", "m1", "new", rows)
    assert store.queues.size("new") == 0
    assert 0 < store.client.ttl(store.keys.arrived("new", "m1")) <= 86_400


@pytest.mark.skipif(not SLOTS, reason="a plain server has nothing on its way")
def test_the_leader_finishes_what_others_have_begun(store: DelayStore, caplog: pytest.LogCaptureFixture) -> None:
    """It brings all moves that have died, each once, and says which it cannot bring and why: once until it can."""
    for queue in ("a", "b", "c"):
        store.delivery.offer(queue, waiting(f"of {queue}"))
        store.moving.depart(queue, f"to {queue}", moves_of(store, queue), f"m {queue}")
    assert store.moving.unfinished(["a", "none"]) == ["a"]
    assert (store.moving.underway("a"), store.moving.underway("none")) == (Underway("m a", "to a", 1), None)
    key = store.keys.stored("to b", store.backup)[0]
    store.client.set(key, "somebody else's")
    resuming = Resuming()
    for _ in range(3):
        resuming.go_on(store, ["a", "b", "c", "none"])
        resuming.stop()
    assert [store.queues.size(f"to {queue}") for queue in "ac"] == [1, 1]
    assert store.moving.unfinished(["a", "b", "c"]) == ["b"]
    [error] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert error.startswith("messages stay on their way from queue 'b' to another one: WRONGTYPE")
    store.client.unlink(key)
    resuming.go_on(store, ["a", "b", "c"])
    assert store.queues.size("to b") == 1
    assert store.moving.unfinished(["a", "b", "c"]) == []
    store.delivery.offer("b", waiting("later"))
    store.moving.depart("b", "to b", moves_of(store, "b"), "m b 2")
    store.client.unlink(*store.keys.stored("to b", store.backup))
    store.client.set(key, "somebody else's")
    resuming.stop()
    resuming.go_on(store, ["b"])
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [error, error]


@pytest.mark.skipif(not SLOTS, reason="a plain server has nothing on its way")
def test_a_queue_is_not_forgotten_while_its_messages_are_on_their_way(store: DelayStore) -> None:
    """Its name stays, so that the leader finds them, although none waits in it."""
    store.delivery.offer("old", waiting("i"))
    store.moving.depart("old", "new", moves_of(store), "m1")
    assert store.queues.forget(["old"], 0) == []
    assert "old" in store.queues.registered()
    store.moving.resume("old")
    assert store.queues.forget(["old"], 0) == ["old"]


def test_offers_that_are_no_text(store: DelayStore) -> None:
    """Bodies of any bytes come as they are."""
    store.delivery.offer("old", Offer("i", repr(FUTURE_MS), 5, bytes(range(256))))
    store.moving.move_to("old", "new", moves_of(store))
    [found] = store.scan.browse("new").messages
    assert (found.body, found.priority) == (bytes(range(256)) + b" moved", 5)
