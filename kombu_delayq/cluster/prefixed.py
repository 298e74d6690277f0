"""The client of a cluster with kombu's ``global_keyprefix``: kombu's own one is made for a client of one server."""

from typing import Any

from kombu.transport.redis import GlobalKeyPrefixMixin

from kombu_delayq.cluster.client import ClusterClient, ClusterPipeline
from kombu_delayq.cluster.pubsub import PrefixedPubSub


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
