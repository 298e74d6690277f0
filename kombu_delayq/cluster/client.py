"""A Redis client that sends each command to the node of its keys."""

from collections.abc import Iterator, Sequence
from typing import Any

import redis
from kombu.transport.redis import GlobalKeyPrefixMixin
from redis.exceptions import AskError, MovedError, ResponseError

from kombu_delayq.cluster.commands import ON_ALL, slot_of
from kombu_delayq.cluster.dispatch import Dispatch, RetryDeadline, follow
from kombu_delayq.cluster.pool import LOST, NodePools, node_of
from kombu_delayq.cluster.pubsub import ClusterPubSub, PrefixedPubSub
from kombu_delayq.cluster.topology import NodeAddress, NoNode
from kombu_delayq.redis import NOT_RUN, OF_USE, Command, Pool, as_sent, pool_of


class ClusterPool(NodePools):
    """Pools of connections to the nodes, with what sends commands over them."""

    def client(self) -> "ClusterClient":
        """Returns a client that sends each command to the node of its keys."""
        return ClusterClient(connection_pool=self)

    def clients(self, *, replicas: bool = False) -> dict[str, redis.Redis]:
        """Returns clients of the primaries, and with ``replicas`` of all nodes, by host and port. Connects to none."""
        self.topology.know()
        found = [*self.topology.primaries, *(self.topology.replicas if replicas else ())]
        return {str(node): redis.Redis(connection_pool=self.of(node)) for node in found}

    def send(self, commands: Sequence[Command]) -> Dispatch:
        """Sends commands to the nodes of their keys. Returns what has their replies."""
        made = Dispatch(self, [(as_sent(command), {}) for command in commands])
        made.send()
        return made


@pool_of.register
def _of(pool: ClusterPool) -> Pool:
    return pool


class _Reading:
    """A mixin, to the left of redis-py's client and of its pipeline."""

    parse_response: Any  # redis-py's

    def _read(self, connection: Any, command: tuple[Any, ...], options: dict[str, Any]) -> Any:
        options.pop("keys", None)  # redis-py's, for its cache
        return self.parse_response(connection, command[0], **options)


class ClusterClient(_Reading, redis.Redis):
    """redis-py's client of one server, over the nodes of a cluster.

    It knows the slot of a command by the first key. A command without a key runs at some node, and ``SCRIPT LOAD`` at
    all. kombu and the store use it like a client of one server. It is no ``RedisCluster``: that one would repeat an
    ``LPUSH`` whose reply is lost.

    Args:
        connection_pool: The connections.
        **kwargs: The other arguments of ``redis.Redis``.
    """

    connection_pool: ClusterPool

    def __init__(self, connection_pool: ClusterPool, **kwargs: Any) -> None:
        super().__init__(connection_pool=connection_pool, **kwargs)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Runs a command. Returns its reply as ``redis.Redis`` does."""
        if args[0] in ON_ALL:
            return self._run_on_all(args, options)
        slot = slot_of(args)
        node = None if slot is None else self.connection_pool.topology.sure_of(slot)
        if slot is not None and node is not None:
            try:
                return self._run_at(node, slot, args, options)
            except (*NOT_RUN, AskError) as error:  # it has not run
                if isinstance(error, MovedError):
                    follow(self.connection_pool, error, node)
            except NoNode:
                pass
        dispatch = Dispatch(self.connection_pool, [(args, options)], self._read)
        dispatch.send()
        [reply] = dispatch.replies()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def pipeline(self, transaction: Any = True, shard_hint: str | None = None) -> "ClusterPipeline":
        """Returns a pipeline, whose commands may have keys in several slots if it is no transaction."""
        return ClusterPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)

    def pubsub(self, **kwargs: Any) -> ClusterPubSub:
        """Returns subscriptions at some node: nodes pass on what is published."""
        return ClusterPubSub(self.connection_pool, **kwargs)

    def scan_iter(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Goes through the keys of all nodes. While a slot moves, a key may be missed or come twice."""
        for client in self.connection_pool.clients().values():
            yield from client.scan_iter(*args, **kwargs)

    def _run_at(self, node: NodeAddress, slot: int, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Runs a command at a node that should have its keys, as almost all commands are run: a dispatch costs more.

        Raises:
            NoNode: The node was not reached.
        """
        pool = self.connection_pool.of(node)
        try:
            connection = pool.get_connection(*OF_USE)
        except LOST as error:
            self.connection_pool.topology.suspect(node, error)
            raise NoNode(str(error)) from error
        try:
            connection.send_command(*args)
            self.connection_pool.await_reply(connection, slot)
            reply = self._read(connection, args, options)
            self.connection_pool.topology.trust(node)  # it may have been late
            return reply
        except ResponseError:
            raise
        except BaseException as error:
            if isinstance(error, LOST):
                self.connection_pool.topology.suspect(node, error)
            connection.disconnect()
            raise
        finally:
            pool.release(connection)

    def _run_on_all(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        found: list[Any] = []
        lost: Exception | None = None
        for client in self.connection_pool.clients().values():
            try:
                found.append(client.execute_command(*args, **options))
            except LOST as error:  # a node that takes its place gets a script when it is first run there
                lost = error
        if lost is not None and (args[0] != "SCRIPT LOAD" or not found):
            raise lost
        return found[-1]


class ClusterPipeline(_Reading, redis.client.Pipeline):
    """redis-py's pipeline, over the nodes of a cluster.

    Without a transaction the commands go to the nodes of their keys at once, and the replies keep the order of the
    commands. With ``raise_on_error=False`` the error of a node that is away is among the replies, once for each of its
    commands, so that those of other nodes count. All keys of a transaction must be in one slot; none can be watched.
    """

    connection_pool: ClusterPool
    # The type stubs of redis-py know these only in part.
    command_stack: list[tuple[tuple[Any, ...], dict[str, Any]]]

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Runs all commands. Returns their replies.

        Args:
            raise_on_error: Whether to raise the first error of Redis among the replies.
        """
        commands = list(self.command_stack)
        if not commands:
            return []
        try:
            if self.scripts:
                self.load_scripts()
            if vars(self)["transaction"] or self.explicit_transaction:
                return self._run_transaction(commands, raise_on_error)
            return self._run_each(commands, raise_on_error)
        finally:
            self.reset()

    def load_scripts(self) -> None:
        """Makes the scripts of this pipeline known to all nodes."""
        for script in list(self.scripts):
            script.sha = ClusterClient(self.connection_pool).script_load(script.script)

    def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        """Refuses WATCH. kombu only watches its notes of what is in hand, which a cluster's channel does without."""
        raise NotImplementedError("WATCH cannot be used over the nodes of a cluster")

    def _run_each(self, commands: list[tuple[tuple[Any, ...], dict[str, Any]]], raise_on_error: bool) -> list[Any]:
        dispatch = Dispatch(self.connection_pool, commands, self._read)
        dispatch.send()
        replies = dispatch.replies()
        if raise_on_error:
            for reply in replies:
                if isinstance(reply, LOST):
                    raise reply
            self.raise_first_error(commands, replies)
        return replies

    def _run_transaction(self, commands: list[Any], raise_on_error: bool) -> list[Any]:
        slots = {slot_of(args) for args, _ in commands} - {None}
        if len(slots) > 1:
            raise ResponseError("CROSSSLOT the keys of a transaction are in several hash slots")
        slot = next(iter(slots), None)
        deadline = RetryDeadline(self.connection_pool)
        asked: redis.ConnectionPool | None = None
        while True:
            connection = self.connection = self._connect(slot, deadline, asked)
            try:
                if asked is not None:
                    connection.send_command("ASKING")
                    connection.read_response()
                return list(self._execute_transaction(connection, commands, raise_on_error))
            except (*NOT_RUN, AskError) as error:
                redirect = error if isinstance(error, AskError) else None
                if redirect is None or not deadline.redirect():
                    deadline.hold(error)
                node = None if redirect is None else follow(self.connection_pool, redirect, node_of(connection))
                asked = None if node is None else self.connection_pool.of(node)
                self.connection = None
                self.connection_pool.release(connection)
            except LOST:
                connection.disconnect()
                self.connection_pool.topology.suspect(node_of(connection))
                raise
            deadline.wait_if_held()

    def _connect(self, slot: int | None, deadline: RetryDeadline, pool: redis.ConnectionPool | None = None) -> Any:
        while True:
            try:
                if pool is None:
                    pool = self.connection_pool if slot is None else self.connection_pool.for_slot(slot)
                return pool.get_connection(*OF_USE)
            except LOST as error:
                pool = None
                if slot is not None and not isinstance(error, NoNode):
                    self.connection_pool.topology.suspect(self.connection_pool.topology.node_of(slot), error)
                deadline.hold(error)
            deadline.wait()


class PrefixedClient(GlobalKeyPrefixMixin, ClusterClient):
    """Puts the prefix before the keys of the commands that kombu uses.

    Args:
        global_keyprefix: The prefix.
        **kwargs: Arguments of ``ClusterClient``.
    """

    def __init__(self, *, global_keyprefix: str, **kwargs: Any) -> None:
        self.global_keyprefix = global_keyprefix
        super().__init__(**kwargs)

    def pipeline(self, transaction: Any = True, shard_hint: str | None = None) -> "PrefixedPipeline":
        """Returns a pipeline with the same prefix."""
        made = PrefixedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        made.global_keyprefix = self.global_keyprefix
        return made

    def pubsub(self, **kwargs: Any) -> PrefixedPubSub:
        """Returns subscriptions with the same prefix."""
        make: Any = PrefixedPubSub  # kombu's part of it takes the prefix
        made: PrefixedPubSub = make(self.connection_pool, global_keyprefix=self.global_keyprefix, **kwargs)
        return made


class PrefixedPipeline(GlobalKeyPrefixMixin, ClusterPipeline):
    """A pipeline that puts the prefix before the keys of the commands that kombu uses."""

    global_keyprefix = ""
