"""Tasks that are found by their ids are no matter of a node that is away, which has other queues and no replica."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from celery import Celery
from kombu import Connection
from kombu.exceptions import OperationalError

from celery_ext import cancel, get, reschedule, run_now
from celery_ext.waiting import by_id
from kombu_delayq.cluster.pool import NodePools
from kombu_delayq.errors import AnswerLost
from kombu_delayq.message.fields import CHAIN_ID
from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import NotSearched
from kombu_delayq.store.types import Offer
from tests.support.commands.shell import lines, run
from tests.support.conditions import until
from tests.support.servers.cluster import PrivateCluster
from tests.support.servers.cluster_node import Node

#: A step of a delay chain.
STEP = Offer("step", "+600000", 0, f'{{"headers": {{"retries": 1}}, "chain": "[chain] {CHAIN_ID}"}}')


class Nodes(NamedTuple):
    """A cluster of three primaries.

    Attributes:
        cluster: The cluster.
        healthy: A queue of a node that lives.
        away: A queue of a node that is to be away, where the task `far` waits.
        node: That node. It does not have the names of the queues.
    """

    cluster: PrivateCluster
    healthy: str
    away: str
    node: Node

    @property
    def url(self) -> str:
        """Broker URL."""
        return self.cluster.url


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a node."""
    monkeypatch.setattr(NodePools, "retry_s", 0.3)


@contextmanager
def three_nodes() -> Iterator[Nodes]:
    """Starts a cluster; all nodes live."""
    with PrivateCluster(replicas=0) as cluster:
        found = {cluster.node_of(name): name for name in (f"orders{number}" for number in range(20))}
        del found[cluster.node_of("{delayq}")]
        (_, healthy), (node, away) = found.items()
        made = Nodes(cluster, healthy, away, node)
        send(made, "far", away)
        send(made, "near")
        yield made


@pytest.fixture(scope="module")
def living() -> Iterator[Nodes]:
    """All nodes live."""
    with three_nodes() as made:
        yield made


@pytest.fixture(scope="module")
def half_dead() -> Iterator[Nodes]:
    """A node is dead and refuses connections, so that it runs nothing."""
    with three_nodes() as made:
        made.node.kill()
        yield made


@pytest.fixture
def app(half_dead: Nodes) -> Iterator["Celery[Any]"]:
    """An app on the cluster of which a node is dead."""
    with Celery(broker=half_dead.url, set_as_current=False) as made:
        yield made


@contextmanager
def opened(nodes: Nodes) -> Iterator[DelayStore]:
    """Opens a store that does not wait long for an answer."""
    with Connection(nodes.url, transport_options={"socket_timeout": 1.0}) as connection:
        yield connection.default_channel.store


def send(nodes: Nodes, task_id: str, queue: str = "") -> str:
    """Sends a task that is due in an hour, by default to the healthy node. Returns its id."""
    with Celery(broker=nodes.url, set_as_current=False) as app:
        app.send_task("task", task_id=task_id, queue=queue or nodes.healthy, countdown=3600)
    return task_id


def outcome_of(store: DelayStore, task_id: str) -> str:
    """Cancels a task. Returns the outcome, or nothing while a node does not answer."""
    try:
        [done] = by_id.cancel(store, [task_id])
    except (AnswerLost, NotSearched):
        return ""
    return done.outcome


def test_an_app_acts_on_what_is_found(half_dead: Nodes, app: "Celery[Any]", caplog: pytest.LogCaptureFixture) -> None:
    """Get, reschedule, run now and cancel have their outcomes, and the log names the queue that was not searched."""
    near, other = send(half_dead, "near app"), send(half_dead, "other app")
    task = get(app, near)
    assert task is not None
    assert task.queue == half_dead.healthy
    assert reschedule(app, near, countdown=7200) == "rescheduled"
    assert run_now(app, near) == "transferred"
    assert cancel(app, other) == "cancelled"
    queues = [match[1] for match in re.finditer(r"queues not searched for further tasks .*: ('.*?'): ", caplog.text)]
    assert queues == [f"'{half_dead.away}'"] * 4


def test_an_app_is_told_what_may_still_wait(half_dead: Nodes, app: "Celery[Any]") -> None:
    """The error names only what no node has searched for; it does not say that this may have been cancelled."""
    near = send(half_dead, "near told")
    for act in (lambda: get(app, "far"), lambda: cancel(app, [near, "far"]), lambda: run_now(app, "far")):
        with pytest.raises(OperationalError, match="1 task may still wait there: 'far': ") as error:
            act()
        assert not isinstance(error.value, AnswerLost)
    with opened(half_dead) as store:
        assert store.lookup.get([half_dead.healthy], [near]) == {}


def test_commands_act_on_what_is_found(half_dead: Nodes) -> None:
    """They end well if all was found, and with an error behind what was done if not."""
    one, two = send(half_dead, "one command"), send(half_dead, "two command")
    assert [row["id"] for row in lines(half_dead, "show", one)] == [one]
    assert f"{one}: sent to be run" in run(half_dead, "run-now", one).stdout
    result = run(half_dead, "cancel", "--yes", two, "far", code=1)
    assert result.stdout == f"{two}: cancelled\n"
    assert f"1 queue not searched: '{half_dead.away}'; 1 task may still wait there: 'far'" in result.stderr
    assert "may have been cancelled" not in result.stderr


def test_a_cancel_by_what_the_tasks_are_tells_what_it_has_removed(half_dead: Nodes) -> None:
    """A server whose caller may cancel some tasks only looks for each id again after it has removed the task."""
    near = send(half_dead, "near only")
    done = []
    with opened(half_dead) as store, pytest.raises(NotSearched, match="1 task may still wait there: 'far'"):
        done.extend(by_id.cancel_only(store, [near, "far"], lambda message: True))
    with opened(half_dead) as store:
        assert store.lookup.get([half_dead.healthy], [near]) == {}
        [again] = by_id.cancel_only(store, [send(half_dead, near)], lambda message: True)
    assert again.outcome == "cancelled"


@pytest.mark.parametrize("is_known", [False, True], ids=["first", "again"])
def test_a_chain_of_which_a_step_is_found_ends(half_dead: Nodes, is_known: bool) -> None:
    """The cancel removes the step at once or after it has noted the chain, which takes no further step then."""
    with opened(half_dead) as store:
        store.chains.step(half_dead.healthy, "[chain]", STEP._replace(id=f"step {is_known}"))
        if is_known:
            store.lookup.cancel([half_dead.healthy, half_dead.away], [send(half_dead, "before")])
        assert outcome_of(store, f"step {is_known}") == "cancelled"
        assert store.chains.step(half_dead.healthy, "[chain]", STEP._replace(id=f"step {is_known}")) == "cancelled"


@pytest.mark.parametrize("is_known", [False, True], ids=["first", "again"])
def test_a_lost_answer_names_only_what_was_not_found(living: Nodes, is_known: bool) -> None:
    """A node that hangs may have removed its task; the step at another is removed for certain, and its chain ends."""
    step, far, done = STEP._replace(id=f"step {is_known}"), send(living, "far", living.away), []
    with opened(living) as store:
        store.chains.step(living.healthy, "[chain]", step)
        if is_known:
            until(lambda: outcome_of(store, "nobody") == "not_delayed")
        assert store.queues.size(living.away)  # so that there is a connection, over which a command is sent
        living.node.stop()
        try:
            with pytest.raises(AnswerLost, match=f"1 task may have been cancelled, or still wait: '{far}'") as lost:
                done.extend(by_id.cancel(store, [step.id, far]))
            assert lost.value.ids == [far]
            assert store.chains.step(living.healthy, "[chain]", step) == "cancelled"
        finally:
            living.node.go_on()
        until(lambda: outcome_of(store, far) == "not_delayed", what="the node has removed the task")


def test_a_lost_answer_is_told_though_chains_cannot_be_refused_either(living: Nodes) -> None:
    """The node that hangs may have removed the task, and also has the notes of cancelled chains."""
    keeper = living.cluster.node_of("{delayq}")
    queue = next(name for name in (f"orders{n}" for n in range(40)) if living.cluster.node_of(name) is keeper)
    far = send(living, "far too", queue)
    with opened(living) as store:
        until(lambda: outcome_of(store, "nobody") == "not_delayed")
        keeper.stop()
        try:
            with pytest.raises(AnswerLost, match=f"1 task may have been cancelled, or still wait: '{far}'"):
                list(by_id.cancel(store, [far]))
        finally:
            keeper.go_on()
        until(lambda: outcome_of(store, far) == "not_delayed", what="the node has removed the task")
