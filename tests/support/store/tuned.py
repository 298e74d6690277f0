"""Options of a store with other constants than those of the product, which no user sets."""

from typing import Any

from kombu_delayq.options import Options

#: Constants of ``Options`` that tests change.
CONSTANTS = ("lease_ttl", "transfer_batch", "transfer_batch_bytes", "cancelled_ttl")


def tuned(**options: Any) -> Options:
    """Returns options, of which those in ``CONSTANTS`` replace the constant of that name."""
    constants = {name: options.pop(name) for name in CONSTANTS if name in options}
    kind: type[Options] = type("TunedOptions", (Options,), constants)
    return kind(**options)
