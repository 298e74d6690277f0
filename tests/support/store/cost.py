"""What an operation costs: round trips, and commands."""

from collections.abc import Callable
from threading import get_ident
from typing import Any

import pytest
from redis.connection import Connection

from kombu_delayq.store import DelayStore


def round_trips(store: DelayStore, act: Callable[[], Any]) -> int:
    """Counts how often the client sends something. Commands sent together count once, however many parts they have.

    What threads of other tests may still send does not count.
    """
    send, sent, me = Connection.send_packed_command, [], get_ident()

    def noted(connection: Connection, command: Any, *args: Any, **kwargs: Any) -> Any:
        if get_ident() == me:
            sent.append(command)
        return send(connection, command, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "send_packed_command", noted)
        act()
    return len(sent)


def calls(store: DelayStore) -> dict[str, int]:
    """Returns how often clients and scripts have called each command since ``CONFIG RESETSTAT``."""
    stats = store.client.info("commandstats")
    return {name.removeprefix("cmdstat_"): entry["calls"] for name, entry in stats.items()}
