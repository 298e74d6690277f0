"""Brings back messages that were unacked for longer than the visibility timeout, without a wait of minutes."""

from typing import Any

from kombu.transport import redis as stock

from celery_ext.waiting.control import store_of_app
from kombu_delayq.connection.text import as_bytes
from kombu_delayq.message.unacked import read_note
from kombu_delayq.store.consuming.types import Requeued
from tests.support.slots import SLOTS
from tests.support.workers.harness import Proj

#: The sweep for messages that were unacked for too long, each second in every worker; kombu has it from 5.7.
WORKERS_SWEEP = hasattr(stock.Channel, "unacked_restore_throttle")


def swept_after(visibility_s: float) -> dict[str, Any]:
    """Returns transport options with which workers give back, every second, what was unacked for ``visibility_s``.

    In hash slots nobody sweeps: there, what a worker held goes back when its lease has ended.
    """
    if SLOTS:
        return {"consumer_ttl": visibility_s, "poll_interval": min(visibility_s / 8, 1.0)}
    sweep = {"unacked_restore_interval": 1, "unacked_restore_throttle": 1} if WORKERS_SWEEP else {}
    return {"visibility_timeout": visibility_s, **sweep}


def sweep(proj: Proj) -> None:
    """Does once what a worker of an older kombu does every 100 s; nothing in hash slots."""
    if not (WORKERS_SWEEP or SLOTS):
        with proj.connection() as connection:
            connection.default_channel.qos.restore_visible(num=None, interval=1)


def give_back(proj: Proj) -> None:
    """Gives back all that is unacked, while those who hold it may go on with it.

    On a plain server it is the sweep after the visibility timeout. With hash slots there is none: this does what a
    transfer worker does for consumers that were silent for too long.
    """
    if not proj.server.slots:
        with proj.connection(visibility_timeout=0) as connection:
            connection.default_channel.qos.restore_visible(num=None, interval=1)
        return
    with store_of_app(proj.app) as store:
        for share in store.consumers.shares():
            holders = store.consumers.counts(share)
            tags = [tag for held in store.consumers.tags_of(holders, share).values() for tag in held]
            for held in store.consumers.notes(tags, share) if tags else ():
                note = read_note(as_bytes(held.note))
                assert note is not None, held
                row = Requeued(held.tag, note.routing_key, note.priority, note.given_back())
                store.taking.requeue([row], "next", redelivers=True)
