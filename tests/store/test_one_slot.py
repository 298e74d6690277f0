"""On a server with hash slots, no command and no script names keys of two slots."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis.connection import AbstractConnection
from redis.crc import key_slot

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq import scripts
from kombu_delayq.connection.text import as_bytes
from kombu_delayq.message.fields import CHAIN_ID
from kombu_delayq.options import LAYOUTS, Options
from kombu_delayq.options.checks import QueueLimits
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.types import QueueForm
from kombu_delayq.store.upkeep.dead_letters import Letter
from tests.lua.test_forget import BRING
from tests.store.test_store import OPERATIONS
from tests.support.slots import need_slots
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, waiting

#: Commands all of whose arguments are keys; of any other the first one is, if any.
OF_KEYS = {"DEL", "EXISTS", "MGET", "UNLINK"}
#: Commands without a key.
WITHOUT = {"CLIENT", "CONFIG", "FLUSHALL", "HELLO", "INFO", "PING", "PUBSUB", "SCAN", "SCRIPT", "TIME", "SUBSCRIBE"}
#: An argument that is a key: scripts get that of the counters so.
KEY = re.compile(rb"app:(?:delayq:.*:counts|delayq:.*:bucket|\{delayq\}:.*)", re.DOTALL)


def keys_of(command: tuple[Any, ...]) -> list[bytes]:
    """Returns the keys that a command names."""
    name, *arguments = (as_bytes(part) if isinstance(part, str | bytes) else b"%r" % part for part in command)
    word = name.decode().upper().split()[0]
    if word in ("EVAL", "EVALSHA"):
        end = 2 + int(arguments[1])
        return [*arguments[2:end], *(one for one in arguments[end:] if KEY.fullmatch(one))]
    if word == "ZDIFF":
        return arguments[1:]
    return [] if word in WITHOUT else arguments if word in OF_KEYS else arguments[:1]


class Sent:
    """Records the commands that this process sends to Redis."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.commands: list[tuple[Any, ...]] = []
        one, many = AbstractConnection.send_command, AbstractConnection.pack_commands

        def send(connection: Any, *command: Any, **how: Any) -> Any:
            self.commands.append(command)
            return one(connection, *command, **how)

        def pack_all(connection: Any, commands: Any) -> Any:
            commands = list(commands)
            self.commands += commands
            return many(connection, commands)

        patch.setattr(AbstractConnection, "send_command", send)
        patch.setattr(AbstractConnection, "pack_commands", pack_all)

    def over_slots(self) -> list[str]:
        """Returns the commands that name keys of two slots, with these keys."""
        found = {}
        for command in self.commands:
            keys = keys_of(command)
            if len({*map(key_slot, keys)}) > 1:
                found[str(command[0]), tuple(keys)] = f"{command[0]} {keys}"
        return list(found.values())


@pytest.fixture(scope="module")
def slots_server() -> Iterator[PrivateRedis]:
    """A Redis Cluster of one node."""
    need_slots()
    with PrivateRedis(slots=True) as server:
        yield server


@pytest.fixture(params=LAYOUTS)
def store(slots_server: PrivateRedis, request: pytest.FixtureRequest) -> Iterator[DelayStore]:
    """A store with a prefix, on an empty database."""
    made = DelayStore(
        redis.Redis(port=slots_server.port), Keys("app:", slots=True), options=Options(layout=request.param)
    )
    made.client.flushall()
    made.client.script_flush()
    yield made
    made.close()


def _bury(store: DelayStore) -> None:
    store.delivery.offer("q", waiting("late", PAST_MS), waiting("kept", PAST_MS))
    done = store.delivery.transfer_limited("q", QueueLimits("dead-letter", 60_000, 5, 5))
    store.lookup.cancel(["q"], ["kept"])
    letters = [(late, b"letter of " + (late.body or b"")) for late in done.too_late]
    assert store.delivery.bury(QueueForm("q", store.layout), letters, "dead") == (1, 0)
    assert store.client.lrange(store.keys.ready("dead", (0,))[0], 0, -1) == [b"letter of body of late"]


def _replay(store: DelayStore) -> None:
    key = store.keys.ready("dead", (0,))[0]
    store.client.lpush(key, "a", "b", "c", "d")
    letters = [
        Letter(b"a", "queue", "q", 9, b"new a"),
        Letter(b"b", "back"),
        Letter(b"c", "away"),
        Letter(b"x", "away"),
    ]
    with store.letters.replaying("dead"):
        assert store.letters.replay("dead", key, letters) == 3
    assert store.client.lrange(key, 0, -1) == [b"b", b"d"]
    assert store.client.lrange(store.keys.ready("q", (0, 9))[1], 0, -1) == [b"new a"]


def _chain(store: DelayStore) -> None:
    offer = waiting("s", body=f"[chain] {CHAIN_ID}")
    assert store.chains.step("q", "[chain]", offer) == "first"
    [step] = store.scan.browse("q").messages
    assert store.lookup.discard("q", [(step, "s")]) == ["cancelled"]
    assert store.chains.step("q", "[chain]", offer) == "cancelled"
    store.chains.accept(["s"])
    assert store.chains.step("q", "[chain]", offer) == "first"
    assert store.chains.refuse(["s"]).chains == {"s"}
    assert store.lookup.cancel(["q"], ["s"]).keys() == {"s"}


def _look(store: DelayStore) -> None:
    for queue in ("q", "r", "s"):
        store.delivery.offer(queue, waiting("i", FUTURE_MS))
    assert len(store.delivery.heads(["q", "r", "s"]).due_ms) == 3
    for name in ("one", "two", "three"):
        store.leases.lead(name)
    assert store.leases.all_quiet(["q", "r", "s"], [])
    assert [one.delayed for one in store.figures.overview(["q", "r"])] == [1, 1]
    store.figures.counts(["q", "r"])
    assert store.queues.exists("q")
    assert not store.queues.exists("none")
    assert store.scan.sizes(["q", "r"])
    store.queues.other_prefixes()
    assert store.queues.delete("q") == 1
    assert store.queues.names() == ["r", "s"]


#: What takes several calls in a cluster, or reads several queues.
MORE: dict[str, Callable[[DelayStore], object]] = {
    "bury letters": _bury,
    "replay letters": _replay,
    "a chain": _chain,
    "several queues": _look,
    "a job": BRING["publish"],
}


#: Operations of which a cluster has others.
ELSEWHERE = {
    "held_page": "what consumers hold is counted by queue",
}


@pytest.mark.parametrize("name", [*OPERATIONS, *MORE])
def test_no_command_names_keys_of_two_slots(store: DelayStore, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whatever the store does, each command and each script keeps to one slot; a real cluster insists on that."""
    if name in ELSEWHERE:
        pytest.skip(ELSEWHERE[name])
    if name == "enqueue":
        OPERATIONS["begin"](store)
    sent = Sent(monkeypatch)
    {**OPERATIONS, **MORE}[name](store)
    assert sent.over_slots() == []
    assert len(sent.commands) > 1
    if name in OPERATIONS and name != "publish":  # without a job there is nothing to publish; "a job" has one
        assert any(str(command[0]).startswith("EVAL") for command in sent.commands)


def test_two_slots_are_noticed(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above notices a command, a script and a key among the arguments of a script that leave the slot."""
    sent = Sent(monkeypatch)
    commands: list[tuple[Any, ...]] = [("MGET", "a", "b"), ("EVAL", "return 1", 2, "a", "b"), ("GET", "a")]
    commands.append(("EVAL", "return 1", 1, "app:q", store.keys.counts("other")))
    for command in commands:
        with store.client.pipeline(transaction=False) as pipe:
            pipe.execute_command(*command)
            pipe.execute(raise_on_error=False)
    assert len(sent.over_slots()) == 3
    assert scripts.load("heads").sha
