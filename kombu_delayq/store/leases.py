"""The store's operations by which transfer workers agree on who leads."""

from collections.abc import Collection, Iterable

from kombu_delayq.connection.text import as_bytes, as_text
from kombu_delayq.store.client import Caller
from kombu_delayq.store.types import Lease


class Leases(Caller):
    """Leases, so that one transfer worker leads, and others, its deputies, are there when it dies."""

    def lead(self, name: str) -> Lease:
        """Takes or renews the lease of the leading transfer worker, or one of its deputies', if one is free."""
        ttl_ms = round(self.options.lease_ttl * 1000)
        keys = [self.keys.queues, *self.keys.leases]
        leader, rank, queues = self._run("lead", keys, [name, ttl_ms])
        return Lease(as_text(leader), sorted(map(as_text, queues)), rank)

    def release(self, name: str) -> bool:
        """Gives a lease back, the leader's or a deputy's. Returns whether one was held under this name."""
        return as_text(self._run("release", self.keys.leases, [name])) == "released"

    def leader(self) -> str | None:
        """Returns the name of the leading transfer worker."""
        name = self.client.get(self.keys.lease)
        return None if name is None else as_text(name)

    def all_quiet(self, known: Collection[str], queues: Iterable[str]) -> bool:
        """Tells whether a transfer worker that stands by has nothing to do; one round trip.

        That is when others hold the leases, no queue has become known, and no message is due. It is told by plain
        commands, which cost Redis a fraction of what scripts cost that are called rarely. An error, such as of a key of
        the wrong type, counts as something to do.

        Args:
            known: Names of the queues that ``lead`` gave.
            queues: Names of others to look after. One that has a message is to become known.
        """
        names = dict.fromkeys((*known, *queues))
        heads_of = [(self._due(queue, backup), queue in known) for queue in names for backup in self._forms]
        with self.client.pipeline(transaction=False) as pipe:
            for lease in self.keys.leases:
                pipe.get(lease)
            pipe.smembers(self.keys.queues)
            pipe.time()
            for due, _ in heads_of:
                pipe.zrange(as_bytes(due), 0, 0, withscores=True)
            replies = pipe.execute(raise_on_error=False)
        known_now, time, *heads = replies[len(self.keys.leases) :]
        if any(reply is None or isinstance(reply, Exception) for reply in replies):
            return False
        now_ms = time[0] * 1000 + time[1] / 1000
        waits = (
            not head or (is_known and head[0][1] > now_ms) for (_, is_known), head in zip(heads_of, heads, strict=True)
        )
        return all(waits) and set(map(as_text, known_now)) == set(known)
