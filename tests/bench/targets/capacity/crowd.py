"""What an operation costs a Redis that has much to do: it finds the requests of many clients at once.

A Redis that sleeps between two requests takes several times as long for each: it has to wake, and the processor has
forgotten it. A load of so many clients would need many machines. Here Redis is stopped until all have sent.
"""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from uuid import uuid4

import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.connection.ahead import SendAhead
from kombu_delayq.connection.text import Command
from kombu_delayq.store import DelayStore
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.consuming.taking import Taking
from kombu_delayq.store.consuming.types import Landing, Request
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.types import Offer
from tests.bench.servers import main_thread_s
from tests.bench.targets.load import QUEUE, message, within_the_next_hour

#: Clients whose requests Redis finds at once.
CLIENTS = 128

#: What was measured: layout of keys, operation, and bytes of a message.
At = tuple[str, str, int]


class Member:
    """A client with a connection and a queue of its own, so that each transfer finds one message.

    Args:
        pool: The connections to the server.
        keys: Names of its keys.
        number: Its number, from 0.
    """

    def __init__(self, pool: redis.ConnectionPool, keys: Keys, number: int) -> None:
        self.name, self.queue = f"bench:1:{number}", f"{QUEUE}{number}"
        self.ahead = SendAhead(pool)
        self._client = StoreClient(redis.Redis(connection_pool=pool), keys)
        self._taking = Taking(self._client)
        self._landing = Landing(self.queue, 0, self.name)
        self._taken = 0

    def push(self, size: int) -> list[Command]:
        """Publishes a message that is not delayed."""
        return [("LPUSH", self._client.ready(self.queue)[0], message(str(uuid4()), size))]

    def pop(self) -> list[Command]:
        """Removes a message from the queue."""
        return [("RPOP", self._client.ready(self.queue)[0])]

    def offer(self, size: int, due_ms: float) -> list[Command]:
        """Publishes a message that is delayed."""
        client, made = self._client, str(uuid4())
        offer = Offer(made, repr(due_ms), 0, message(made, size))
        args = [client.wake(self.queue), self.queue, 0, *offer]
        return [client.evalsha_command("offer", client.stored(self.queue), args)]

    def transfer(self) -> list[Command]:
        """Transfers what is due."""
        client = self._client
        keys = [*client.stored(self.queue), *client.ready(self.queue)]
        args = [200, 400_000, client.keys.counts(self.queue), *client.list_of_priority]
        return [client.evalsha_command("transfer", keys, args)]

    def land(self) -> list[Command]:
        """Moves a message to the landing list, as a wait does that Redis ends."""
        return [("LMOVE", *self._taking.landing(self._landing), "RIGHT", "LEFT")]

    def take(self) -> list[Command]:
        """Acknowledges a message, and takes the one that has landed, in one round trip."""
        tags = [f"{self.name}.{self._taken - 1}"]
        request = Request(self.name, self._taken, 1, [self.queue], landings=[self._landing])
        self._taken += 1
        return [self._taking.ack_command(tags, self.queue), self._taking.take_command(request)]


class Crowd:
    """Clients of one server that send at the same time."""

    def __init__(self, server: PrivateRedis) -> None:
        self._server, self._asks = server, server.client()
        self._pool = redis.ConnectionPool(port=server.port, max_connections=2 * CLIENTS)
        keys = Keys(slots=server.slots)
        self.members = [Member(self._pool, keys, number) for number in range(CLIENTS)]
        store = DelayStore(redis.Redis(port=server.port), keys)
        for member in self.members:
            store.consumers.beat(member.name, [member.queue], is_new=True)
        for operation in ("offer", "transfer", "take", "ack"):
            store.client.script_load(StoreClient(store.client, keys).script(operation).text)
        store.close()
        for member in self.members:  # connects; a Redis that is stopped would not answer
            member.ahead.send([("PING",)])
        for member in self.members:
            member.ahead.confirm()

    def cost_us(self, commands: Callable[[Member], Sequence[Command]]) -> float:
        """Returns the CPU time of Redis for the commands of one of them, in µs; one round trip."""
        given = [commands(member) for member in self.members]
        before = main_thread_s(self._asks)
        os.kill(self._server.pid, signal.SIGSTOP)
        try:
            for member, those in zip(self.members, given, strict=True):
                member.ahead.send(those)
        finally:
            os.kill(self._server.pid, signal.SIGCONT)
        for member in self.members:
            member.ahead.confirm()
        return (main_thread_s(self._asks) - before) / CLIENTS * 1e6

    def close(self) -> None:
        """Closes all connections."""
        self._pool.disconnect()


@contextmanager
def crowd(*, slots: bool) -> Iterator[Crowd]:
    """Starts a server and its clients."""
    with PrivateRedis(slots=slots) as server:
        those = Crowd(server)
        yield those
        those.close()


def costs_us(crowds: Mapping[str, Crowd], sizes: Sequence[int], rounds: int) -> dict[At, float]:
    """Returns what a message costs Redis in µs: medians of rounds, over the crowds and sizes in turn."""
    later = within_the_next_hour()
    for clients in crowds.values():
        for _ in range(3):  # so that none is the first
            clients.cost_us(lambda member: member.offer(sizes[0], later()))
    found: dict[At, list[float]] = {}
    for turn in range(rounds + 1):
        for size in sizes:
            for name, clients in crowds.items():
                for what, cost in _round(clients, size, later()).items():
                    if turn:  # the first warms up
                        found.setdefault((name, what, size), []).append(cost)
    return {at: median(those) for at, those in found.items()}


def _round(clients: Crowd, size: int, later_ms: float) -> dict[str, float]:
    costs = {"publish": clients.cost_us(lambda member: member.push(size))}
    clients.cost_us(lambda member: member.pop())
    costs["delay"] = clients.cost_us(lambda member: member.offer(size, later_ms))
    clients.cost_us(lambda member: member.offer(size, 1.0))
    costs["transfer_one"] = clients.cost_us(lambda member: member.transfer())
    costs["consume"] = clients.cost_us(lambda member: member.land()) + clients.cost_us(lambda member: member.take())
    return costs
