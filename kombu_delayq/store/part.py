"""The common part of all parts of a store."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kombu_delayq.store.client import StoreClient
    from kombu_delayq.store.registry import QueueRegistry


class StorePart:
    """Operations of one subject, over the client that all parts share.

    ``DelayStore`` has the parts that deliver messages. Each other feature brings a part of its own, which
    ``DelayStore.part`` makes; names of its keys, a ``KeyNames``; and its scripts, in a folder of ``lua/``.
    """

    def __init__(self, client: "StoreClient", registry: "QueueRegistry") -> None:
        self._client = client
        self._keys = client.keys
        self._registry = registry
