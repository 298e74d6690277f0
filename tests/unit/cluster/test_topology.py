"""What is known of the nodes, by what they answer."""

import os
from collections.abc import Callable
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import AskError

from kombu_delayq.cluster.dispatch import RetryDeadline, follow
from kombu_delayq.cluster.topology import NodeAddress, NoNode, Topology

A, B = NodeAddress("a", 7000), NodeAddress("b", 7001)
FOUND = [[0, 8191, [b"a", 7000, b"id", []]], [8192, 16383, [b"b", 7001, b"id", []]]]


def test_a_node_that_has_lost_its_memory_says_nothing_of_others() -> None:
    """A node that comes back blank names no slots: those of the others stay known."""
    answers: list[Any] = [FOUND, []]
    topology = Topology([A], lambda node, limit_s: answers.pop(0))
    topology.know()
    topology.suspect(A)
    assert topology.may_answer(A)
    assert (topology.primaries, topology.owner_of(16383), answers) == ((A, B), B, [])


@pytest.mark.parametrize("more", [[b"ip", b"10.0.0.2"], {b"ip": b"10.0.0.2"}])
def test_a_node_without_a_name_is_known_by_its_address(more: Any) -> None:
    """By RESP2 the rest of a node is a list, by RESP3 a dict; a redirection names no address at all."""
    topology = Topology([A], lambda node, limit_s: [FOUND[0], [8192, 16383, [b"?", 7001, b"id", more]]])
    topology.know()
    assert topology.owner_of(16383) == NodeAddress("10.0.0.2", 7001)
    pools: Any = SimpleNamespace(topology=topology)
    assert follow(pools, AskError("16383 ?:7001"), A) == NodeAddress("10.0.0.2", 7001)


class _Interrupted(Topology):
    """Nodes at which another thread may go on whenever one has set a field."""

    meanwhile: Callable[[], None] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        meanwhile = type(self).meanwhile
        type(self).meanwhile = None
        if meanwhile is not None:
            meanwhile()


def test_no_thread_of_a_child_waits_for_one_of_its_parent() -> None:
    """While a thread of a forked child begins to ask for the nodes, others ask too, although the parent was asking."""
    asks, may_answer = Event(), Event()

    def ask(node: NodeAddress, limit_s: float) -> list[Any]:
        asks.set()
        may_answer.wait(10)
        return FOUND

    topology = _Interrupted([A], ask)
    parent = Thread(target=topology.refresh)
    parent.start()
    assert asks.wait(10)
    pid = os.fork()
    if not pid:
        may_answer.set()
        other = Thread(target=topology.refresh, daemon=True)

        def refresh_too() -> None:
            other.start()
            other.join(5)

        try:
            _Interrupted.meanwhile = refresh_too
            topology.refresh()
            os._exit(other.is_alive())
        finally:  # an error would let the child go on with the tests
            os._exit(2)
    may_answer.set()
    parent.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_command_that_waits_too_long_for_a_slot_that_moves_says_so() -> None:
    """The text names the slot and where it goes, which Redis gives without a word."""
    pool: Any = SimpleNamespace(retry_s=0, topology=SimpleNamespace(refresh=lambda: False))
    deadline = RetryDeadline(pool)
    deadline.hold(AskError("16383 b:7001"))
    with pytest.raises(NoNode, match="within 0 s: slot 16383 moves to b:7001"):
        deadline.wait()
