"""When the next message of each queue is due, and who hears of it when that changes."""

from collections.abc import Sequence

from redis.exceptions import ResponseError

from kombu_delayq.redis.replies import time_ms
from kombu_delayq.store.client import ScriptCall, StoreClient, StorePart
from kombu_delayq.store.types import QueueForm, QueueHeads
from kombu_delayq.store.wake import WakeListener


class Heads(StorePart):
    """Reads the heads of queues, for transfer workers.

    Args:
        client: The client of the store.
    """

    def __init__(self, client: StoreClient) -> None:
        super().__init__(client)
        self._had_heads: frozenset[str] = frozenset()  # queues that had messages at the last look

    def heads(self, queues: Sequence[str]) -> QueueHeads:
        """Reads when the next message of each queue is due, in either layout; at most two round trips.

        A queue that had no message at the last look costs one command, and no script, until it has one. But a queue of
        each node is always read by the script, for the clock of the node.

        A node that does not answer holds up no queue of the others: its queues are left out. If no node answers, that
        is an error.
        """
        return self._client.in_each_form(lambda forms: self._heads(queues, forms))

    def listen(self) -> WakeListener:
        """Subscribes to the announcements of new heads."""
        return WakeListener(self._client.redis, self._keys)

    def _heads(self, queues: Sequence[str], layouts: Sequence[str]) -> QueueHeads:
        dues = {queue: [self._client.due(queue, one) for one in layouts] for queue in queues}
        read = {*self._client.one_a_node({queue: keys[0] for queue, keys in dues.items()}), *self._had_heads}
        empty = [queue for queue in dues if queue not in read]
        found = self._client.replies([("EXISTS", *dues[queue]) for queue in empty]) if empty else []
        errors = [reply for reply in found if isinstance(reply, Exception)]
        there = [queue for queue, reply in zip(empty, found, strict=True) if not isinstance(reply, Exception) and reply]
        asked = [queue for queue in dues if queue in read or queue in there]
        calls: list[ScriptCall] = [(dues[queue], [], "hash") for queue in asked]
        replies, _ = self._client.run_each("heads", calls)
        errors += [reply for reply in replies if isinstance(reply, Exception)]
        refused = [error for error in errors if isinstance(error, ResponseError)]
        if refused:
            raise refused[0]
        now_ms, due_ms = 0.0, dict[QueueForm, float]()
        for queue, reply in zip(asked, replies, strict=True):
            if not isinstance(reply, Exception):
                now_ms = max(now_ms, float(reply[0]))
                due_ms |= {
                    QueueForm(queue, one): float(due) for one, due in zip(layouts, reply[1:], strict=True) if due
                }
        if not now_ms:
            now_ms = time_ms(self._client.redis.time())
        self._had_heads = self._had_heads.difference(queues).union(form.queue for form in due_ms)
        return QueueHeads(now_ms, due_ms)
