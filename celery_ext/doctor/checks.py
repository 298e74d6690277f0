"""All checks, in the order in which they are made."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from celery_ext.doctor import app, broker, fleet, servers
from celery_ext.doctor.finding import Findings
from celery_ext.doctor.subject import Subject


class Needs(Enum):
    """What a check needs."""

    APP = "an app"
    REDIS = "Redis"
    WORKERS = "workers"


@dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        name: Its name, such as for ``--only``.
        look: Looks, and yields what it finds; nothing if all is well.
        needs: What it needs.
        asks: Whether it hears workers. Without ``Needs.WORKERS`` it is also made if they cannot be asked.
        at_start: Whether a worker makes it when it starts.
    """

    name: str
    look: Callable[[Subject], Findings]
    needs: tuple[Needs, ...]
    asks: bool = False
    at_start: bool = False

    @property
    def question(self) -> str:
        """The question that it answers, as plain text."""
        return (inspect.getdoc(self.look) or "").splitlines()[0].replace("``", "")


_APP, _REDIS, _WORKERS = (Needs.APP,), (Needs.REDIS,), (Needs.REDIS, Needs.WORKERS)

#: The checks.
CHECKS = (
    Check("transport", app.transport, _APP),
    Check("broker-url", app.broker_url, _APP),
    Check("options", app.options, _APP),
    Check("settings", app.settings, _APP),
    Check("install", app.install, _APP),
    Check("chains", app.chains, _APP),
    Check("visibility-timeout", app.visibility_timeout, _APP, at_start=True),
    Check("kombu", app.kombu, _APP, at_start=True),
    Check("redis-version", servers.version, _REDIS),
    Check("eviction", servers.eviction, _REDIS),
    Check("persistence", servers.persistence, _REDIS),
    Check("memory", servers.memory, _REDIS, at_start=True),
    Check("clock", servers.clock, _REDIS, at_start=True),
    Check("leader", broker.leader, _REDIS),
    Check("consumers", broker.consumers, _REDIS, asks=True),
    Check("queues", broker.unreadable, _REDIS),
    Check("in-hand", broker.in_hand, _REDIS),
    Check("prefixes", broker.prefixes, _REDIS),
    Check("journal", broker.journal, _REDIS),
    Check("workers", fleet.workers, _WORKERS, asks=True),
    Check("fleet", fleet.fleet, _WORKERS, asks=True),
    Check("same-options", fleet.same_options, _WORKERS, asks=True),
    Check("worker-versions", fleet.versions, _WORKERS, asks=True),
    Check("worker-clocks", fleet.clocks, _WORKERS, asks=True),
    Check("long-tasks", fleet.long_tasks, _WORKERS, asks=True),
)
