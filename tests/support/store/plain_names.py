"""A client by which a test names keys as they are on a plain server, whichever server it runs on."""

import re
from typing import Any

import redis

from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys

#: What all queues have together; it has one hash tag in a cluster.
_OF_ALL = re.compile(
    r"(app:|\{app\}:)?delayq:((?:queues|used|cancelled|chains|transfer|deputy|deputy:2|runs|dead_letters|journal"
    r"|consumed_queues|renaming)(?::(?:guard|lease))?|(?:replaying|job|guard|staged|parts|begun|stream):.*)",
    re.DOTALL,
)
#: A list of a queue for higher priorities, with any separator of the tests.
_LIST = re.compile(r"((?:app:)?(?:q|dead|other|due))(\x06\x16|:|~ | - |)([1-9]|-\d+|\d+\.\d+|1\d)")
#: A list of any queue for higher priorities, with kombu's own separator.
_KOMBU_LIST = re.compile(r"([^{}]+)(\x06\x16)(\d)", re.DOTALL)
#: The queue whose consumers' keys have the plain names, unless a client says otherwise.
QUEUE = "q"


def _held(queue: str) -> dict[str, str]:
    """Returns the names of what consumers hold of a queue, and of their leases."""
    return {
        "unacked": f"unacked:{{{queue}}}",
        "unacked_index": f"unacked_index:{{{queue}}}",
        "delayq:consumers": f"delayq:{{{queue}}}:consumers",
        "delayq:consumers:queues": f"delayq:{{{queue}}}:consumed",
    }


def slotted(name: str, queue: str = QUEUE) -> str:
    """Returns the name that a key of a plain server has in a cluster.

    Args:
        name: The name.
        queue: The queue whose consumers are meant by ``unacked`` and the like.
    """
    if (held := _held(queue).get(name)) is not None:
        return held
    if found := _OF_ALL.fullmatch(name):
        return f"{found[1] or ''}{{delayq}}:{found[2]}"
    if found := _LIST.fullmatch(name) or _KOMBU_LIST.fullmatch(name):
        prefix = "app:" if found[1].startswith("app:") else ""
        return f"{prefix}{{{found[1]}}}{found[2]}{found[3]}"
    return name.replace("_kombu.binding.", "{_kombu.binding}.", 1) if name.startswith("_kombu.binding.") else name


def name_in(store: DelayStore, name: str) -> str:
    """Returns the name that a key of a plain server has on the server of a store."""
    return slotted(name) if store.keys.slots else name


def unacked_of(store: DelayStore) -> tuple[str, str]:
    """Returns the two keys of what consumers hold of the queue ``q``, as ``Delivery.adopt`` takes them."""
    share = store.keys.share("q")
    return store.keys.unacked_index(share), store.keys.unacked(share)


def _plain(key: Any, queue: str) -> Any:
    name = key if isinstance(key, str) else key.decode("utf-8", "surrogateescape")
    back = {slotted: plain for plain, slotted in _held(queue).items()}
    name = back.get(name, name).replace("{delayq}:", "delayq:").replace("{_kombu.binding}", "_kombu.binding")
    name = re.sub(r"^(?:app:)?\{([^}]+)\}(?=[^}]*\d$)", r"\1", name, flags=re.DOTALL)
    return name if isinstance(key, str) else name.encode("utf-8", "surrogateescape")


class PlainNames(redis.Redis):
    """A client of a one-node cluster that takes, and returns, the names that keys have on a plain server.

    So one test shows the same on both. Scripts get their keys as they are.
    """

    #: The queue whose consumers' keys have the plain names.
    queue = QUEUE
    #: Whether SCAN returns plain names as well. Not for a store, which looks at the keys that it finds.
    scans_plain = False

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Runs a command, on the keys of the cluster."""
        if args[0] in ("EVAL", "EVALSHA"):
            return super().execute_command(*args, **options)
        reply = super().execute_command(args[0], *map(self._slotted, args[1:]), **options)
        if args[0] == "SCAN" and self.scans_plain:
            return reply[0], [_plain(key, self.queue) for key in reply[1]]
        return [_plain(key, self.queue) for key in reply] if args[0] == "KEYS" else reply

    def _slotted(self, argument: Any) -> Any:
        if isinstance(argument, str):
            return slotted(argument, self.queue)
        is_text = isinstance(argument, bytes) and argument.isascii()
        return slotted(argument.decode(), self.queue).encode() if is_text else argument


class WorkersNames(PlainNames):
    """The same for the default queue of Celery's workers."""

    queue = "celery"
    scans_plain = True


def client_of(port: int, *, slots: bool, **options: Any) -> redis.Redis:
    """Returns a client of a server of this machine that takes the names of a plain server."""
    return PlainNames(port=port, **options) if slots else redis.Redis(port=port, **options)


def keys_of(server: Any, **fields: Any) -> Keys:
    """Returns the names of the keys on a server."""
    return Keys(**fields, slots=server.slots)
