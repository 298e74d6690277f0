"""``Keys``: the names of all Redis keys."""

import re
from inspect import getdoc, signature
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu import Connection
from kombu.transport.redis import Channel
from redis.crc import key_slot

from celery_ext.dead_letters.keys import LetterKeys
from celery_ext.features import key_names
from celery_ext.journal.keys import JournalKeys
from celery_ext.spark.keys import JobKeys
from kombu_delayq.cluster import SlotKeys
from kombu_delayq.errors import InvalidOptions, InvalidQueueName
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.redisson_layout import RedissonKeys


@pytest.mark.parametrize(
    ("queue", "tagged"),
    [
        ("orders", "{orders}"),
        ("with space", "{with space}"),
        ("ünïcode", "{ünïcode}"),
        ("a}b", "{a}b}"),
        ("a{b", "{a{b}"),
        ("", "{}"),
        ("{eu}.orders", "tagged:{eu}.orders"),
        ("orders{7}", "tagged:orders{7}"),
    ],
)
def test_a_queues_keys_carry_its_name_as_hash_tag(queue: str, tagged: str) -> None:
    """The queue's name is the hash tag of its keys; a name with a ``{`` brings its own."""
    keys = Keys()
    assert keys.due(queue) == f"delayq:{tagged}:due"
    assert keys.bodies(queue) == f"delayq:{tagged}:bodies"
    assert keys.order(queue) == f"delayq:{tagged}:order"
    assert keys.duplicates(queue) == f"delayq:{tagged}:duplicates"


def test_the_prefix_stands_before_every_name() -> None:
    """Kombu's ``global_keyprefix`` stands before every key and before the channel."""
    plain, prefixed = Keys(), Keys("app:")
    for name in ("queues", "lease", "standby", "second_standby", "wake", "cancelled"):
        assert getattr(prefixed, name) == "app:" + getattr(plain, name)
    assert LetterKeys(prefixed).replaying("q") == "app:" + LetterKeys(plain).replaying("q")
    assert JobKeys(prefixed).job("q") == "app:" + JobKeys(plain).job("q")
    for name in ("due", "bodies", "order", "duplicates"):
        assert getattr(prefixed, name)("q") == "app:" + getattr(plain, name)("app:q")
    assert prefixed.ready("q", (0, 3)) == ["app:" + key for key in plain.ready("q", (0, 3))]


def test_no_two_keys_are_the_same() -> None:
    """All keys of a queue or job, and those of one whose name only adds braces or a part of a key, differ."""
    keys, of_job = Keys(), JobKeys(Keys())
    makers = (keys.due, keys.bodies, keys.order, keys.duplicates, LetterKeys(keys).replaying)
    makers += (of_job.job, of_job.guard, of_job.stream)
    like_keys = ("}:due", "job:a", "{a}:due", "delayq:{a}:due", "a:due")
    names = [make(name) for name in ("a", "b", "{a}", "tagged:a", "", *like_keys) for make in makers]
    names += [keys.queues, *keys.leases, keys.cancelled, of_job.runs, keys.wake]
    names += [*keys.ready("a", (0, 3)), *keys.ready("{a}", (0, 3))]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("prefix", ["", "app:", "a*?[b]\\", "delayq:"])
@pytest.mark.parametrize(
    "queue", ["q", "", "{", "{a}", "tagged:a", "tagged:{a}", "a:due", "}:due", "a}:bodies", "ü\udcff"]
)
def test_a_queue_is_told_by_its_keys(prefix: str, queue: str) -> None:
    """The keys of index and bodies tell a queue of any name, behind any prefix; other keys do not."""
    keys, of_job = Keys(prefix), JobKeys(Keys(prefix))
    assert keys.queue_of(keys.due(queue)) == keys.queue_of(keys.bodies(queue)) == queue
    others = [keys.order(queue), keys.duplicates(queue), keys.due(queue) + ":due", f"x{keys.due(queue)}", keys.wake]
    of_jobs = [of(name) for of in (of_job.job, of_job.guard, of_job.stream) for name in (queue, f"{queue}:due")]
    for other in others + of_jobs:
        assert keys.queue_of(other) != queue


@pytest.mark.parametrize(
    "key",
    [
        *("", "delayq:", "{delayq}:queues", "delayq:q:due", "delayq:{q:due", "delayq:q}:due", "delayq::due"),
        *("delayq:{{q}}:due", "delayq:tagged:q:due", "delayq:tagged::due", "delayq:{q}:order", "DELAYQ:{q}:due"),
        "other:delayq:{q}:due",
    ],
)
def test_a_key_that_is_none_of_ours_tells_no_queue(key: str) -> None:
    """A key that only looks like one of ours is of no queue."""
    assert Keys().queue_of(key) is None


class Named(Channel):
    """kombu's naming, without a connection."""

    def __init__(self, steps: Any, separator: str) -> None:
        self.priority_steps = steps
        self.sep = separator

    def __del__(self) -> None: ...

    def consumed(self, queue: str) -> list[str]:
        """Returns the lists that a consumer reads. Source: kombu.transport.redis.Channel._brpop_start."""
        return [self._q_for_pri(queue, step) for step in self.priority_steps]


@pytest.mark.parametrize("steps", [(0, 3, 6, 9), (0,), (0, 9), tuple(range(10)), (3, 6), (1,), (9, 6, 3, 0), (0, 0, 3)])
@pytest.mark.parametrize("separator", ["\x06\x16", ":", "", "~ "])
def test_ready_lists_are_those_of_kombu(steps: tuple[int, ...], separator: str) -> None:
    """The lists of a queue are those that kombu's consumer reads, in its order, each once."""
    consumed = Named(steps, separator).consumed("q")
    assert Keys(separator=separator).ready("q", steps) == list(dict.fromkeys(consumed))


@given(st.lists(st.integers(-3, 15) | st.floats(0, 9, allow_nan=False), min_size=1, max_size=8))
def test_a_priority_goes_where_kombu_pushes_it_and_its_consumer_reads(steps: list[float]) -> None:
    """With any steps, in any order, each priority goes to the list of stock kombu, which a consumer reads."""
    kombu, keys = Named(steps, ":"), Keys("app:", separator=":")
    ready = keys.ready("q", steps)  # type: ignore[arg-type]
    lists = [ready[at] for at in keys.lists_of_priorities(steps)]  # type: ignore[arg-type]
    assert lists == [f"app:{kombu._q_for_pri('q', priority)}" for priority in range(10)]
    assert {*ready} == {f"app:{name}" for name in kombu.consumed("q")}


@pytest.mark.parametrize(
    "steps", [None, [], (), "0,3,6,9", "", "5", ["0", "3"], {0, 3}, 7, [None], [0, "3"], iter([0])]
)
def test_steps_with_which_kombu_cannot_work_are_refused(steps: Any) -> None:
    """Steps that stock kombu takes, and with which no message can be published, are an error that names them."""
    with pytest.raises((TypeError, IndexError)):
        Named(steps, ":")._q_for_pri("q", 5)
    with pytest.raises(InvalidOptions, match="is not a list of numbers"):
        Keys().lists_of_priorities(steps)
    options = {"priority_steps": steps}
    connection = Connection("redis://", transport="kombu_delayq.transport:Transport", transport_options=options)
    with pytest.raises(InvalidOptions, match="priority_steps="):
        connection.ensure_connection(max_retries=1)


def test_keys_of_consumers() -> None:
    """An in-flight list is one of its queue, list and consumer; kombu's own keys have the names of its options."""
    keys = Keys("app:", unacked_key="held", unacked_index_key="held_index")
    assert keys.in_flight("q", 2, "host:1:00000000") == "app:delayq:{app:q}:landing:2:host:1:00000000"
    assert keys.in_flight("{q}", 0, "h:1:0") == "app:delayq:tagged:{q}:landing:0:h:1:0"
    assert (keys.unacked(""), keys.unacked_index("")) == ("app:held", "app:held_index")
    assert (keys.consumers(""), keys.consumed("")) == ("app:{delayq}:consumers", "app:{delayq}:consumers:queues")


@pytest.mark.parametrize("prefix", ["", "app:", "*[x"])
@pytest.mark.parametrize("queue", ["q", "{q}", "", "a:landing:1:b", "ü \udcff", "tagged:x"])
def test_an_in_flight_list_tells_whose_it_is(prefix: str, queue: str) -> None:
    """Queue, list and consumer are read from the key, whatever the queue's name; other keys tell nothing."""
    keys = Keys(prefix)
    assert keys.in_flight_of(keys.in_flight(queue, 12, "fe80::1:7:0000abcd")) == (queue, 12, "fe80::1:7:0000abcd")
    for other in (keys.due(queue), keys.queues, "delayq:x:landing:0:a", f"{prefix}delayq:{{q}}:landing:x:a", ""):
        assert keys.in_flight_of(other) is None


@pytest.mark.parametrize("prefix", ["", "app:", "{app}:"])
@pytest.mark.parametrize("queue", ["orders", "{a}b", "x{a}b", "a:b", "ünï", "tagged:x"])
def test_in_a_cluster_the_keys_of_a_queue_share_a_slot(prefix: str, queue: str) -> None:
    """All keys of a queue are in the slot of its first list, which keeps its name, and tell whose they are."""
    keys = SlotKeys(prefix)
    keys.check_queue(queue)
    lists = keys.ready(queue, (0, 3, 6, 9))
    assert lists[0] == prefix + queue
    held = [keys.unacked(queue), keys.unacked_index(queue), keys.consumers(queue), keys.consumed(queue)]
    own = [
        *LAYOUT_OF["hash"].keys(keys, queue),
        *LAYOUT_OF["redisson"].keys(keys, queue),
        keys.counts(queue),
        keys.bucket(queue),
    ]
    assert len({*lists, *held, *own}) == 4 + 4 + 10
    guards = [guard for key in (*lists, *held, *own) for guard in keys.guards([key])]
    assert len(guards) == 18
    assert {key_slot(key.encode()) for key in (*lists, *held, *own, *guards)} == {key_slot(lists[0].encode())}
    assert [key for key in (*lists, *held, *own[:4]) if not key.startswith(prefix)] == []
    assert keys.queue_of(keys.due(queue)) == queue
    assert keys.in_flight_of(keys.in_flight(queue, 1, "h:1:0")) == (queue, 1, "h:1:0")


@pytest.mark.parametrize(
    ("prefix", "queue"),
    [("a}", "orders"), ("", "a}b"), ("", "a{b"), ("", "{}a"), ("x{", "orders"), ("{a", "b}c"), ("", "")],
)
def test_a_name_without_a_slot_of_its_own_is_refused(prefix: str, queue: str) -> None:
    """A brace that makes no hash tag would put a queue's keys into other slots; without slots it does no harm."""
    with pytest.raises(InvalidQueueName, match=r"cannot be used in Redis Cluster.*(has a brace|is empty)"):
        SlotKeys(prefix).check_queue(queue)
    Keys(prefix).check_queue(queue)


def test_in_a_cluster_the_keys_of_the_fleet_share_a_slot() -> None:
    """Leases and the registry are used together; what kombu keeps of bindings has one slot, too."""
    keys = SlotKeys("app:")
    of_fleet = [*keys.leases, keys.queues, keys.cancelled, keys.chains]
    of_fleet += [JournalKeys(keys).journal(), JournalKeys(keys).journal_guard()]
    assert len({key_slot(key.encode()) for key in of_fleet}) == 1
    assert keys.bindings("a") == "app:{_kombu.binding}.a"
    assert keys.prefix_of(keys.queues) == "app:"
    assert keys.lists_of_priorities((0, 3, 6, 9)) == Keys("app:").lists_of_priorities((0, 3, 6, 9))


def _all_names(keys: Keys) -> list[str]:
    """Returns every key and channel of ours, of kombu's and of Redisson's layout, for the queues ``q`` and ``{q}``."""
    found: list[str] = []
    for names in (keys, *(kind(keys) for kind in (RedissonKeys, *key_names()))):
        for name, member in (item for kind in type(names).__mro__ for item in vars(kind).items()):
            if not re.match(r"(STRING|LIST|SET|ZSET|HASH|Channel)\b", getdoc(member) or ""):
                continue
            if isinstance(value := getattr(names, name), str):
                found.append(value)
            else:
                rest = ["7", "host:1:name"][: len(signature(value).parameters) - 1]
                found += [value(queue, *rest) for queue in ("q", "{q}")]
    return found


@pytest.mark.parametrize("kind", [Keys, SlotKeys])
@pytest.mark.parametrize("prefix", ["", "app:"])
def test_a_queue_has_no_name_of_another_key(prefix: str, kind: type[Keys]) -> None:
    """No list of a queue, of any priority, may be a key of ours, of kombu's or of Redisson's layout."""
    keys = kind(prefix, unacked_key="held")
    names = [name.removeprefix(prefix) for name in _all_names(keys) if name.startswith(prefix)]
    assert len(names) > 45
    usable = [name for name in names if keys.is_usable(name)]
    assert usable == []
    with pytest.raises(InvalidQueueName, match="kept for keys of kombu-delayq"):
        keys.check_queue("{delayq}:paused")
    of_kombu = ["unacked_mutex", "_kombu.binding_deadlines", "_kombu.binding_permanent.q"]
    assert [name for name in of_kombu if keys.is_usable(name)] == []
    for name in ("orders", "delayq", "held_back", "unacked tasks", "kombu", "x:{delayq}:paused"):
        assert keys.is_usable(name), name


def test_the_lists_of_other_priorities_count_too() -> None:
    """With kombu's ``sep`` a list of lower priority may be a key although the first list is none."""
    assert Keys(separator="_").is_usable("delayq")
    assert not Keys(separator=":").is_usable("delayq")
