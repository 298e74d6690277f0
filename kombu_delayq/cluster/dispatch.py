"""Sends commands to the nodes that have their keys, and again while slots move or nodes are away."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any

import redis
from redis.exceptions import AskError, MovedError, ResponseError, TryAgainError

from kombu_delayq.cluster.commands import OF_ANY, needs_all_keys, slot_of, with_one_key
from kombu_delayq.cluster.pool import LOST, NodePools, node_of
from kombu_delayq.cluster.topology import NodeAddress, NoNode
from kombu_delayq.redis import NOT_RUN, OF_USE, Backoff, is_pool_full, packed_commands

#: Pauses between tries, in s.
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
#: So many redirections of a command are followed at once; more mean that nodes disagree, which takes a moment.
REDIRECTS_AT_ONCE = 3

#: Reads the reply to a command, with the options that redis-py's client got with it, from a connection.
Read = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class RetryDeadline:
    """How long to try commands again that no node could run, with growing pauses.

    Args:
        pool: The connections; its ``retry_s`` says for how long.
        commands: How many commands there are.
    """

    def __init__(self, pool: NodePools, commands: int = 1) -> None:
        self._pool = pool
        self._most_redirects = REDIRECTS_AT_ONCE * commands
        self._backoff = Backoff(SHORTEST_PAUSE_S, LONGEST_PAUSE_S)
        self._until: float | None = None
        self._error: Exception | None = None
        self._redirects = 0

    def hold(self, error: Exception) -> None:
        """Notes why a command cannot be run at the moment."""
        self._error = error

    def begin_earlier(self, away_s: float) -> None:
        """Counts the time in which a node has already been away, if the pool serves others too."""
        if self._until is None and self._pool.serves_others:
            self._until = monotonic() + self._pool.retry_s - away_s

    def redirect(self) -> bool:
        """Counts a redirection to another node. Returns whether that node may be asked at once."""
        self._redirects += 1
        return self._redirects <= self._most_redirects

    def wait_if_held(self) -> None:
        """Waits before the next try, if a command could not be run."""
        if self._error is not None:
            self.wait()
            self._error = None

    def wait(self) -> None:
        """Waits before the next try.

        Raises:
            NoNode: The deadline is over.
        """
        if self._until is None:
            self._until = monotonic() + self._pool.retry_s
        # A connection comes back soon, and tells nobody.
        is_full = self._error is not None and is_pool_full(self._error)
        has_changed = not is_full and self._pool.topology.refresh()
        if not has_changed and monotonic() + self._backoff.next_s > self._until:
            error = self._error
            why = f"slot {error.slot_id} moves to {error.host}:{error.port}" if isinstance(error, AskError) else error
            raise NoNode(f"the cluster has not run a command within {self._pool.retry_s:g} s: {why}") from error
        sleep(SHORTEST_PAUSE_S if is_full else self._backoff.failed())


@dataclass
class PendingCommand:
    """A command whose reply has not come.

    Attributes:
        at: Its place among the commands.
        command: Name and arguments.
        options: What redis-py needs to read the reply.
        slot: The hash slot of its keys; None without a key.
        asked: The node that has the keys already, while their slot moves there.
        in_parts: The command in the form of ``with_one_key``, if that is to be sent to this node.
    """

    at: int
    command: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    slot: int | None = None
    asked: NodeAddress | None = None
    in_parts: tuple[Any, ...] | None = None

    @property
    def sent(self) -> tuple[Any, ...]:
        """What is sent."""
        return self.command if self.asked is None or self.in_parts is None else self.in_parts


def read_raw(connection: Any, command: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Reads a reply as it is."""
    return connection.read_response()


class Dispatch:
    """Commands, each of which is run once by the node that has its keys.

    A command is sent again only if no node has run it: a node sent it elsewhere, or refused it for the moment, or was
    not reached. A command whose reply is lost is not sent again. Commands of one node keep their order.

    Args:
        pool: The connections.
        commands: The commands, each with the options of redis-py's client.
        read: Reads a reply.
    """

    def __init__(
        self,
        pool: NodePools,
        commands: Sequence[tuple[tuple[Any, ...], dict[str, Any]]],
        read: Read = read_raw,
    ) -> None:
        self._pool = pool
        self._read = read
        self._replies: list[Any] = [None] * len(commands)
        self._pending = [
            PendingCommand(at, command, options, slot_of(command)) for at, (command, options) in enumerate(commands)
        ]
        self._held: list[PendingCommand] = []
        self._sent: list[tuple[Any, list[PendingCommand]]] = []
        self._deadline = RetryDeadline(pool, len(commands))

    def send(self) -> None:
        """Sends all commands that no node has run, and returns before the nodes run them."""
        parts: defaultdict[NodeAddress | None, list[PendingCommand]] = defaultdict(list)
        pending, self._pending = sorted(self._pending, key=lambda one: one.at), []
        for one in pending:
            try:
                parts[self._node_of(one)].append(one)
            except NoNode as error:
                self._hold([one], error)
        try:
            for node, commands in parts.items():
                self._send_to(node, commands)
        except BaseException:
            self.close()
            raise

    def replies(self) -> list[Any]:
        """Waits for the replies to all commands.

        Returns:
            The replies. Among them are errors of Redis; the error of a lost connection for each command whose reply is
            lost; and ``NoNode`` for each command that no node could run in time.
        """
        while True:
            try:
                while self._sent:
                    self._read_from(*self._sent.pop(0))
            except BaseException:
                self.close()
                raise
            if self._held and not self._pending:
                held, self._held = self._held, []
                try:
                    self._deadline.wait()
                except NoNode as error:
                    self._fail(held, error)
                else:
                    self._pending = held
            if not self._pending:
                return self._replies
            self.send()

    def close(self) -> None:
        """Closes the connections over which replies are awaited. The nodes may run these commands or not."""
        sent, self._sent = self._sent, []
        for connection, _ in sent:
            self._end(connection)

    def _node_of(self, one: PendingCommand) -> NodeAddress | None:
        if one.asked is not None or one.slot is None:
            return one.asked
        return self._pool.topology.node_of(one.slot)

    def _send_to(self, node: NodeAddress | None, pending: list[PendingCommand]) -> None:
        topology = self._pool.topology
        if node is not None and not topology.may_answer(node):
            self._deadline.begin_earlier(topology.away_s(node))
            self._hold(pending, topology.silence(node))
            return
        try:
            pool = self._pool if node is None else self._pool.of(node)
            connection = pool.get_connection(*OF_USE)
        except LOST as error:
            if node is not None:
                topology.suspect(node, error)
            self._hold(pending, error)
            return
        commands: list[tuple[Any, ...]] = []
        for one in pending:
            commands += [("ASKING",), one.sent] if one.asked else [one.sent]
        try:
            connection.send_packed_command(packed_commands(connection, commands))
        except LOST as error:
            self._lose(connection, pending, error)
        except BaseException:
            self._end(connection)
            raise
        else:
            self._sent.append((connection, pending))

    def _read_from(self, connection: Any, pending: list[PendingCommand]) -> None:
        done = 0
        first = pending[0]
        try:
            if first.asked is None:
                self._pool.await_reply(connection, first.slot)
            for one in pending:
                reply = self._reply(connection, one)
                if not isinstance(reply, Exception) or not self._repeats(one, node_of(connection), reply):
                    self._replies[one.at] = reply
                done += 1
        except LOST as error:
            self._lose(connection, pending[done:], error)
        except BaseException:
            self._end(connection)
            raise
        else:
            self._pool.topology.trust(node_of(connection))
            self._pool.release(connection)

    def _reply(self, connection: Any, one: PendingCommand) -> Any:
        try:
            if one.asked is not None:
                connection.read_response()
            return self._read(connection, one.command, dict(one.options))
        except ResponseError as error:
            return error

    def _repeats(self, one: PendingCommand, node: NodeAddress, error: Exception) -> bool:
        """Whether a command is to be sent again after an error, and where to."""
        if isinstance(error, TryAgainError) and one.asked is not None and one.in_parts is None:
            one.in_parts = with_one_key(one.command)
            if one.in_parts is not None:
                self._pending.append(one)
                return True
        if isinstance(error, NOT_RUN):
            self._hold([one], error)
        elif isinstance(error, AskError):
            one.asked, one.in_parts = follow(self._pool, error, node), None
            if one.asked is not None and needs_all_keys(one.command) and self._has_any(one):
                self._hold([one], error)  # it would take keys for empty, and make them there, which would stop the move
            elif self._deadline.redirect():
                self._pending.append(one)
            else:
                self._hold([one], error)
        else:
            return False
        return True

    def _has_any(self, one: PendingCommand) -> bool:
        """Whether the node that the slot of a command moves away from may have a key of the slot."""
        owner = None if one.slot is None else self._pool.topology.owner_of(one.slot)
        if owner is None or owner == one.asked:
            return True
        with redis.Redis(connection_pool=self._pool.of(owner)) as client:
            try:
                return bool(client.execute_command("CLUSTER COUNTKEYSINSLOT", one.slot))
            except (redis.RedisError, OSError):  # the user may have no right to ask
                return True

    def _hold(self, pending: list[PendingCommand], error: Exception) -> None:
        for one in pending:
            one.asked = one.in_parts = None
        self._held += pending
        self._deadline.hold(error)

    def _fail(self, pending: list[PendingCommand], error: Exception) -> None:
        for one in pending:
            self._replies[one.at] = error

    def _lose(self, connection: Any, pending: list[PendingCommand], error: Exception) -> None:
        self._fail([one for one in pending if not _is_of_any(one)], error)
        self._pool.topology.suspect(node_of(connection), error)
        if of_any := [one for one in pending if _is_of_any(one)]:
            self._hold(of_any, error)
        self._end(connection)

    def _end(self, connection: Any) -> None:
        connection.disconnect()
        self._pool.release(connection)


def _is_of_any(one: PendingCommand) -> bool:
    return one.slot is None and one.command[0] in OF_ANY


def follow(pool: NodePools, error: AskError, node: NodeAddress) -> NodeAddress | None:
    """Returns the node to which another one redirects a command, and notes it if the slot has moved.

    Args:
        pool: The connections.
        error: The answer of the other node.
        node: The other node; a cluster may name nodes by their ports alone, and those without a name by ``?``.

    Returns:
        The node that is to be asked once; None if the slot has moved for good.
    """
    named = NodeAddress(str(error.host) or node.host, int(error.port))
    if named.host == "?":
        known = [one for one in (*pool.topology.primaries, *pool.topology.replicas) if one.port == named.port]
        named = known[0] if len(known) == 1 else named
    if not isinstance(error, MovedError):
        return named
    pool.topology.moved(int(error.slot_id), named)
    return None
