"""What a check is: a question, what it needs, and what looks for the answer."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

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


#: What checks need.
APP, REDIS, WORKERS = (Needs.APP,), (Needs.REDIS,), (Needs.REDIS, Needs.WORKERS)
