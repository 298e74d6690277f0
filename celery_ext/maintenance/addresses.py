"""The address of a message that goes to another queue than it was sent to."""

from kombu_delayq.message.fields import properties_of, read
from kombu_delayq.message.rewrite import with_properties


def readdressed(raw: bytes, old: str, new: str) -> bytes:
    """Returns a message that names the queue ``new`` as its own, if it named ``old``.

    A task sends its own retries to the queue that its message names. A message that came through another exchange than
    the default one stays as it is, because its routing key names no queue.
    """
    info = properties_of(read(raw)).get("delivery_info")
    if not isinstance(info, dict) or info.get("exchange") or info.get("routing_key") != old:
        return raw
    return with_properties(raw, {}, delivery_info={"routing_key": new})
