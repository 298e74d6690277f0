"""The store's operations by which running tasks are asked to stop."""

from collections.abc import Callable, Sequence
from typing import Any

from redis import Redis
from redis.client import PubSub

from celery_ext.stopping.keys import StopKeys
from kombu_delayq.store import StorePart
from kombu_delayq.text import as_bytes


class StopStore(StorePart):
    """Asks running tasks to stop. Redis knows them by the subscriptions of their processes, and keeps nothing.

    In a cluster all of them subscribe at the node that knows who leads. While that is away, or where Redis refuses the
    command, nobody hears.
    """

    @property
    def node(self) -> Any:
        """The connections to the node of the subscriptions. A later one differs once the key has moved."""
        return self._client.pool.node_of(self._keys.lease)

    def subscriptions(self) -> PubSub:
        """Returns subscriptions to channels of tasks, none so far."""
        found: PubSub = self._client.client_at(self._keys.lease).pubsub()
        return found

    def channel(self, task_id: str) -> bytes:
        """Returns the name of the channel of a task."""
        return as_bytes(StopKeys(self._keys).stop(task_id))

    def ask(self, ids: Sequence[str]) -> list[str]:
        """Asks tasks to stop, in one round trip. Returns the ids of those that run and hear it."""
        channels = map(self.channel, ids)

        def publish(node: Redis) -> list[int]:
            with node.pipeline(transaction=False) as pipeline:
                for channel in channels:
                    pipeline.publish(channel, b"")
                counts: list[int] = pipeline.execute()
                return counts

        return [task_id for task_id, heard in zip(ids, self._at_node(publish), strict=False) if heard]

    def running(self, ids: Sequence[str]) -> list[str]:
        """Returns the ids of those tasks that run and would hear if they are asked to stop."""
        channels = [self.channel(task_id) for task_id in ids]
        counts = self._at_node(lambda node: [int(count) for _, count in node.pubsub_numsub(*channels)])
        return [task_id for task_id, count in zip(ids, counts, strict=False) if count]

    def _at_node(self, ask: Callable[[Redis], list[int]]) -> list[int]:
        """Returns the counts that the node of the subscriptions gives; none if it is away, or refuses."""
        try:
            return ask(self._client.client_at(self._keys.lease))
        except self._client.pool.partial_errors:
            return []
