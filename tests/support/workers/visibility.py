"""Brings back messages that were unacked for longer than the visibility timeout, without a wait of minutes."""

from typing import Any

from kombu.transport import redis as stock

from tests.support.workers.harness import Proj

#: The sweep for messages that were unacked for too long, each second in every worker; kombu has it from 5.7.
WORKERS_SWEEP = hasattr(stock.Channel, "unacked_restore_throttle")


def swept_after(visibility_s: float) -> dict[str, Any]:
    """Returns transport options with which workers give back, every second, what was unacked for ``visibility_s``."""
    sweep = {"unacked_restore_interval": 1, "unacked_restore_throttle": 1} if WORKERS_SWEEP else {}
    return {"visibility_timeout": visibility_s, **sweep}


def sweep(proj: Proj) -> None:
    """Does once what a worker of an older kombu does every 100 s."""
    if not WORKERS_SWEEP:
        with proj.connection() as connection:
            connection.default_channel.qos.restore_visible(num=None, interval=1)


def give_back(proj: Proj) -> None:
    """Gives back all that is unacked, while those who hold it may go on with it."""
    with proj.connection(visibility_timeout=0) as connection:
        connection.default_channel.qos.restore_visible(num=None, interval=1)
