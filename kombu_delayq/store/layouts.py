"""The layouts in which messages are kept."""

from kombu_delayq.store.hash_layout import HASH
from kombu_delayq.store.layout import Layout
from kombu_delayq.store.redisson_layout import REDISSON
from kombu_delayq.store.types import BESIDE

#: The layouts by the names that the transport option ``layout`` has for them. A journal keeps messages as ``hash``.
LAYOUT_OF: dict[str, Layout] = {"hash": HASH, "redisson": REDISSON, BESIDE: HASH}
