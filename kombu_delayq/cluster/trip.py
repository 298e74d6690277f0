"""Brings commands to the nodes of their keys, wherever these are meanwhile."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis
from redis.exceptions import AskError, ClusterDownError, MovedError, ResponseError, TryAgainError

from kombu_delayq.cluster.one_key import counters_of, keys_of, with_one_key
from kombu_delayq.cluster.patience import Patience
from kombu_delayq.cluster.pool import LOST, NodePools, is_full, node_of
from kombu_delayq.cluster.slots import OF_ANY, slot_of
from kombu_delayq.cluster.topology import Node, NoNode
from kombu_delayq.connection.demotion import NotPrimary
from kombu_delayq.connection.pools import OF_USE

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
        in_parts: The command in the form of ``with_one_key``, if that is to be sent to this node.
    """

    at: int
    command: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    slot: int | None = None
    asked: Node | None = None
    in_parts: tuple[Any, ...] | None = None

    @property
    def sent(self) -> tuple[Any, ...]:
        """What is sent."""
        return self.command if self.asked is None or self.in_parts is None else self.in_parts


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
            commands += [("ASKING",), passenger.sent] if passenger.asked else [passenger.sent]
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
            if first.asked is None:
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
        if isinstance(error, TryAgainError) and passenger.asked is not None and passenger.in_parts is None:
            in_parts = with_one_key(passenger.command)
            # Redis 6.2 answers ASK also while the old node has some of the keys: the script would take them for empty.
            if in_parts is not None and not self._has_any(passenger, keys_of(passenger.command)):
                passenger.in_parts = in_parts
                self._pending.append(passenger)
                return True
        if isinstance(error, PASSING):
            self._hold([passenger], error)
        elif isinstance(error, AskError):
            passenger.asked, passenger.in_parts = follow(self._pool, error, node), None
            if passenger.asked is not None and self._has_any(passenger, counters_of(passenger.command)):
                self._hold([passenger], error)  # it would make its counters anew there, and that would stop the move
            elif self._patience.redirect():
                self._pending.append(passenger)
            else:
                self._hold([passenger], error)
        else:
            return False
        return True

    def _has_any(self, passenger: Passenger, keys: Sequence[str | bytes]) -> bool:
        """Whether the node that a slot moves away from may have one of some keys."""
        if not keys:
            return False
        if passenger.slot is None:
            return True
        owner = self._pool.topology.owner_of(passenger.slot)
        if owner is None or owner == passenger.asked:
            return True
        with redis.Redis(connection_pool=self._pool.of(owner)) as client, client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.execute_command("EXISTS", key)  # one by one: which error comes for several depends on the version
            try:
                replies = pipe.execute(raise_on_error=False)
            except LOST:
                return True
        # Without ASK the key is there; or the slot no longer moves, and the next try tells.
        return not all(isinstance(reply, AskError) and not isinstance(reply, MovedError) for reply in replies)

    def _hold(self, passengers: list[Passenger], error: Exception) -> None:
        for passenger in passengers:
            passenger.asked = passenger.in_parts = None
        self._held += passengers
        self._patience.hold(error)

    def _fail(self, passengers: list[Passenger], error: Exception) -> None:
        for passenger in passengers:
            self._replies[passenger.at] = error

    def _lose(self, connection: Any, passengers: list[Passenger], error: Exception) -> None:
        self._fail([passenger for passenger in passengers if not _is_of_any(passenger)], error)
        self._pool.topology.suspect(node_of(connection), error)
        if of_any := [passenger for passenger in passengers if _is_of_any(passenger)]:
            self._hold(of_any, error)
        self._end(connection)

    def _end(self, connection: Any) -> None:
        connection.disconnect()
        self._pool.release(connection)


def _is_of_any(passenger: Passenger) -> bool:
    return passenger.slot is None and passenger.command[0] in OF_ANY


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
