"""How a broker is reached by its URL, with or without an app."""

from typing import Any

from kombu.connection import Connection

TRANSPORT = "kombu_delayq.transport:Transport"


def open_channel(connection: Connection) -> Any:
    """Connects to the first broker of a connection that answers, each tried once, and returns a channel."""
    connection.ensure_connection(
        max_retries=max(len(connection.alt), 1), interval_start=0, interval_step=0, reraise_as_library_errors=False
    )
    return connection.default_channel
