"""All checks, in the order in which they are made."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from celery_ext.doctor import app, broker, servers
from celery_ext.doctor.finding import Findings
from celery_ext.doctor.subject import Subject


class Needs(Enum):
    """What a check needs."""

    APP = "an app"
    REDIS = "Redis"


@dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        name: Its name, such as for ``--only``.
        look: Looks, and yields what it finds; nothing if all is well.
        needs: What it needs.
    """

    name: str
    look: Callable[[Subject], Findings]
    needs: tuple[Needs, ...]

    @property
    def question(self) -> str:
        """The question that it answers, as plain text."""
        return (inspect.getdoc(self.look) or "").splitlines()[0].replace("``", "")


_APP, _REDIS = (Needs.APP,), (Needs.REDIS,)

#: The checks.
CHECKS = (
    Check("transport", app.transport, _APP),
    Check("broker-url", app.broker_url, _APP),
    Check("options", app.options, _APP),
    Check("install", app.install, _APP),
    Check("chains", app.chains, _APP),
    Check("visibility-timeout", app.visibility_timeout, _APP),
    Check("redis-version", servers.version, _REDIS),
    Check("eviction", servers.eviction, _REDIS),
    Check("persistence", servers.persistence, _REDIS),
    Check("memory", servers.memory, _REDIS),
    Check("clock", servers.clock, _REDIS),
    Check("leader", broker.leader, _REDIS),
    Check("consumers", broker.consumers, _REDIS),
    Check("queues", broker.unreadable, _REDIS),
    Check("in-hand", broker.in_hand, _REDIS),
    Check("prefixes", broker.prefixes, _REDIS),
    Check("journal", broker.journal, _REDIS),
)
