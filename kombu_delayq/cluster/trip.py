"""Brings commands to the nodes of their keys, wherever these are meanwhile."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any

from redis.exceptions import AskError, ClusterDownError, MovedError, ResponseError, TryAgainError

from kombu_delayq.cluster.pool import LOST, NodePools, is_full, node_of
from kombu_delayq.cluster.slots import slot_of
from kombu_delayq.cluster.topology import Node, NoNode
from kombu_delayq.connection.demotion import NotPrimary
from kombu_delayq.connection.pools import OF_USE

#: Pauses between tries, in s.
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
#: So many redirections of a command are followed at once; more mean that nodes disagree, which takes a moment.
AT_ONCE = 3

#: Errors of a node that has not run a command, but may run it soon: it lacks some of the keys while their slot moves,
#: the cluster lacks nodes, or a primary lacks replicas.
PASSING = (TryAgainError, ClusterDownError, NotPrimary)

#: Reads the reply to a command, with the options that redis-py's client got with it, from a connection.
Read = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


@dataclass
class Passenger:
    """A command on its way.

    Attributes:
        at: Its place among the commands.
        command: Name and arguments.
        options: What redis-py needs to read the reply.
        slot: The hash slot of its keys; None without a key.
        asked: The node that has the keys already, while their slot moves there.
    """

    at: int
    command: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    slot: int | None = None
    asked: Node | None = None


def read_raw(connection: Any, command: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Reads a reply as it is."""
    return connection.read_response()


class Trip:
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
            Passenger(at, command, options, slot_of(command)) for at, (command, options) in enumerate(commands)
        ]
        self._held: list[Passenger] = []
        self._sent: list[tuple[Any, list[Passenger]]] = []
        self._patience = Patience(pool, len(commands))

    def send(self) -> None:
        """Sends all commands that no node has run, and returns before the nodes run them."""
        parts: defaultdict[Node | None, list[Passenger]] = defaultdict(list)
        pending, self._pending = sorted(self._pending, key=lambda passenger: passenger.at), []
        for passenger in pending:
            try:
                parts[self._node_of(passenger)].append(passenger)
            except NoNode as error:
                self._hold([passenger], error)
        try:
            for node, passengers in parts.items():
                self._send_to(node, passengers)
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
                    self._patience.wait()
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

    def _node_of(self, passenger: Passenger) -> Node | None:
        if passenger.asked is not None or passenger.slot is None:
            return passenger.asked
        return self._pool.topology.node_of(passenger.slot)

    def _send_to(self, node: Node | None, passengers: list[Passenger]) -> None:
        topology = self._pool.topology
        if node is not None and not topology.may_answer(node):
            self._patience.count(topology.away_s(node))
            self._hold(passengers, topology.silence(node))
            return
        try:
            pool = self._pool if node is None else self._pool.of(node)
            connection = pool.get_connection(*OF_USE)
        except LOST as error:
            if is_full(error):
                raise
            if node is not None:
                topology.suspect(node, error)
            self._hold(passengers, error)
            return
        commands: list[tuple[Any, ...]] = []
        for passenger in passengers:
            commands += [("ASKING",), passenger.command] if passenger.asked else [passenger.command]
        try:
            connection.send_packed_command(connection.pack_commands(commands))
        except LOST as error:
            self._lose(connection, passengers, error)
        except BaseException:
            self._end(connection)
            raise
        else:
            self._sent.append((connection, passengers))

    def _read_from(self, connection: Any, passengers: list[Passenger]) -> None:
        done = 0
        first = passengers[0]
        try:
            if first.slot is not None and first.asked is None:
                self._pool.await_reply(connection, first.slot)
            for passenger in passengers:
                reply = self._reply(connection, passenger)
                if not isinstance(reply, Exception) or not self._repeats(passenger, node_of(connection), reply):
                    self._replies[passenger.at] = reply
                done += 1
        except LOST as error:
            self._lose(connection, passengers[done:], error)
        except BaseException:
            self._end(connection)
            raise
        else:
            self._pool.topology.trust(node_of(connection))
            self._pool.release(connection)

    def _reply(self, connection: Any, passenger: Passenger) -> Any:
        try:
            if passenger.asked is not None:
                connection.read_response()
            return self._read(connection, passenger.command, dict(passenger.options))
        except ResponseError as error:
            return error

    def _repeats(self, passenger: Passenger, node: Node, error: Exception) -> bool:
        """Whether a command is to be sent again after an error, and where to."""
        if isinstance(error, PASSING):
            self._hold([passenger], error)
        elif isinstance(error, AskError):
            passenger.asked = follow(self._pool, error, node)
            if self._patience.redirect():
                self._pending.append(passenger)
            else:
                self._hold([passenger], error)
        else:
            return False
        return True

    def _hold(self, passengers: list[Passenger], error: Exception) -> None:
        for passenger in passengers:
            passenger.asked = None
        self._held += passengers
        self._patience.hold(error)

    def _fail(self, passengers: list[Passenger], error: Exception) -> None:
        for passenger in passengers:
            self._replies[passenger.at] = error

    def _lose(self, connection: Any, passengers: list[Passenger], error: Exception) -> None:
        self._fail(passengers, error)
        self._pool.topology.suspect(node_of(connection), error)
        self._end(connection)

    def _end(self, connection: Any) -> None:
        connection.disconnect()
        self._pool.release(connection)


class Patience:
    """How long commands are tried that no node could run, with growing pauses.

    Args:
        pool: The connections; its ``patience_s`` says how long.
        commands: How many commands there are.
    """

    def __init__(self, pool: NodePools, commands: int = 1) -> None:
        self._pool = pool
        self._most_redirects = AT_ONCE * commands
        self._pause_s = SHORTEST_PAUSE_S
        self._until: float | None = None
        self._error: Exception | None = None
        self._redirects = 0

    def hold(self, error: Exception) -> None:
        """Notes why a command could not be run for the moment."""
        self._error = error

    def count(self, away_s: float) -> None:
        """Counts the time in which a node has been away already, if the pool serves others."""
        if self._until is None and self._pool.serves_others:
            self._until = monotonic() + self._pool.patience_s - away_s

    def redirect(self) -> bool:
        """Notes that a node has named another one. Returns whether that one may be asked at once."""
        self._redirects += 1
        return self._redirects <= self._most_redirects

    def wait_if_held(self) -> None:
        """Waits before the next try, if the last one was to wait."""
        if self._error is not None:
            self.wait()
            self._error = None

    def wait(self) -> None:
        """Waits before the next try.

        Raises:
            NoNode: There has been no node for too long.
        """
        if self._until is None:
            self._until = monotonic() + self._pool.patience_s
        has_changed = self._pool.topology.refresh()
        if not has_changed and monotonic() + self._pause_s > self._until:
            error = self._error
            raise NoNode(f"the cluster has not run a command within {self._pool.patience_s:g} s: {error}") from error
        sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)


def follow(pool: NodePools, error: AskError, node: Node) -> Node | None:
    """Takes note of the node to which another one sends a command.

    Args:
        pool: The connections.
        error: The answer of the other node.
        node: The other node; a cluster may name nodes by their ports alone.

    Returns:
        The node that is to be asked once; None if the slot has moved for good.
    """
    named = Node(str(error.host) or node.host, int(error.port))
    if not isinstance(error, MovedError):
        return named
    pool.topology.moved(int(error.slot_id), named)
    return None
