"""What differs at a server with hash slots, be it one of many nodes or a single one."""

from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from kombu_delayq.cluster.queue_fetchers import QueueFetchers
from kombu_delayq.cluster.slots import SlotKeys
from kombu_delayq.errors import InvalidBrokerURL, InvalidOptions
from kombu_delayq.options import Options
from kombu_delayq.redis import passes
from kombu_delayq.text import as_text
from kombu_delayq.transport import PlainServer


class SlotServer(PlainServer):
    """How a transport and its channels use a server with hash slots.

    Args:
        client: A plain client of the server, which has to have all slots; None for the transport that knows all nodes.

    Raises:
        InvalidBrokerURL: The server has some of the slots only.
    """

    fetcher_class: type[Any] = QueueFetchers

    def __init__(self, client: Redis | None = None) -> None:
        if client is not None and (count := _primaries(client)) > 1:
            raise InvalidBrokerURL(
                f"the broker is one of {count} nodes of a Redis Cluster; write delayq+cluster://…, with TLS "
                "delayqs+cluster://…, and name this node or any other"
            )

    def check(self, options: Options) -> None:
        """Raises InvalidOptions for an option that cannot be used there."""
        if options.consume == "brpop":
            raise InvalidOptions(
                "consume='brpop' cannot be used in Redis Cluster: it reads several lists in one command, which are in "
                "different hash slots there; leave consume='reliable'"
            )

    def check_brpop(self, reason: object) -> None:
        """Raises InvalidOptions: there is no other way to consume than ours."""
        raise InvalidOptions(
            f"messages cannot be consumed, and in Redis Cluster there is no other way, because {reason}"
        )

    def key_names(self, channel: Any) -> SlotKeys:
        """Gives keys of kombu's that commands use together one hash slot, before anything is written."""
        # What consumers of ordinary queues hold is kept by the store, queue by queue; here is what kombu itself keeps,
        # such as messages of fanouts.
        channel.unacked_key, channel.unacked_index_key = "{unacked}", "{unacked}_index"
        channel.unacked_mutex_key = "{unacked}_mutex"
        for name in ("keyprefix_queue", "keyprefix_binding_permanent", "keyprefix_binding_deadlines"):
            if hasattr(channel, name):  # the last two are new in kombu 5.7
                setattr(channel, name, str(getattr(channel, name)).replace("_kombu.binding", "{_kombu.binding}", 1))
        return SlotKeys(channel.global_keyprefix, 0, channel.sep)


def _primaries(client: Redis) -> int:
    """Counts the nodes among which a server with hash slots divides them, as far as it says.

    Args:
        client: A plain Redis client.

    Returns:
        The number; 1 where the server does not answer, as a managed service that shows one node only.
    """
    try:
        found = client.execute_command("CLUSTER", "SLOTS")
    except ResponseError as error:
        if passes(error):
            raise
        return 1
    return len({(as_text(primary[0]), primary[1]) for _, _, primary, *_ in found}) or 1
