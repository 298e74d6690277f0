"""Sends tasks for as long as somebody looks at the page of the demo."""

import importlib
import logging
import os
from random import Random
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

from kombu.exceptions import OperationalError

from celery_ext.demo.private_redis import PrivateRedis

logger = logging.getLogger(__name__)

#: Queues to which the tasks go.
QUEUES = ("mail", "billing", "reports")
#: Tasks at the start, and how many s of delay the middle one of them has.
FIRST, MIDDLE_S = 800, 900.0
#: Longest delay in s.
LONGEST_S = 40 * 86_400.0
#: Pause between two tasks later on, in s.
PAUSE_S = 0.7
_NAMES = ("ada", "bob", "chloé", "dmitri", "eve", "עדה", "小林")


class Feed:
    """Sends tasks with all kinds of delays: many at the start, and then one after the other.

    Args:
        server: The broker.
    """

    def __init__(self, server: PrivateRedis) -> None:
        os.environ["DELAYQ_DEMO_BROKER"] = server.url
        tasks: Any = importlib.import_module("celery_ext.demo.app")
        self.app: Any = tasks.app
        self._tasks = tasks
        self._random = Random(1)
        self._end = Event()
        self._thread = Thread(target=self._run, name="demo-feed", daemon=True)

    def fill(self) -> None:
        """Sends the tasks of the start."""
        for _ in range(FIRST):
            self._send(min(MIDDLE_S * self._random.lognormvariate(0, 2.2), LONGEST_S))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        self.app.close()

    def _run(self) -> None:
        while not self._end.wait(PAUSE_S):
            try:
                self._send(self._random.uniform(2, 120))
            except OperationalError:  # a terminal sends Ctrl-C to Redis, too
                logger.debug("the broker of the demo is away")
            except Exception:
                logger.exception("a task of the demo could not be sent")

    def _send(self, delay_s: float) -> None:
        draw, who = self._random.random(), self._random.choice(_NAMES)
        if draw < 0.6:
            arguments = (f"{who}@example.org", f"Your order {self._random.randrange(10_000)}")
            self._tasks.send_mail.apply_async(arguments, queue="mail", countdown=delay_s)
        elif draw < 0.9:
            works = {"works": self._random.random() < 0.8}
            amount = round(self._random.uniform(5, 500), 2)
            self._tasks.charge.apply_async((who, amount), works, queue="billing", countdown=delay_s)
        else:
            day = f"2026-{self._random.randrange(1, 13):02}-01"
            self._tasks.build_report.apply_async(
                (day,), {"formats": ["pdf", "csv"]}, queue="reports", countdown=delay_s
            )
