"""Notifies merchants of payments until they say that they have understood."""

import http.client
import json
import os
import urllib.request
from typing import Any

from celery import Celery
from celery.utils.log import get_task_logger

import celery_ext
from celery_ext import DelayChain, delay_chain_exhausted

#: When a merchant who did not say "success" is asked again.
STEPS = "4m,10m,10m,1h,2h,6h,15h"
#: How many times faster than that, to watch a day in minutes.
SPEED_UP = float(os.environ.get("PAYMENTS_SPEED_UP", "1"))
#: The queue of notifications that were never accepted.
UNDELIVERED = "undelivered"

logger = get_task_logger(__name__)

app = Celery("payments")
app.config_from_object("celeryconfig")
celery_ext.install(app)


def sped_up(steps: str, factor: float) -> str:
    """Returns a chain whose steps are shorter by a factor: ``4m,10m`` by 1000 is ``0.240s,0.600s``."""
    return ",".join(f"{step.total_seconds() / factor:.3f}s" for step in DelayChain.parse(steps))


class NotAccepted(Exception):
    """The merchant answered something else than success."""


@app.task(
    delay_chain=sped_up(STEPS, SPEED_UP),
    dead_letter_queue=UNDELIVERED,
    autoretry_for=(NotAccepted, OSError, http.client.HTTPException),
    acks_late=True,
)
def notify(payment: str, cents: int, url: str) -> str:
    """Notifies a merchant of a payment. Returns what the merchant said."""
    body = json.dumps({"payment": payment, "cents": cents}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        answer: str = response.read(100).decode(errors="replace").strip()
    if answer != "success":
        raise NotAccepted(f"{url} said {answer!r}")
    return answer


@delay_chain_exhausted.connect
def tell_somebody(task_id: str, request: Any, chain: DelayChain, exception: Exception, **kwargs: Any) -> None:
    """Says in the log of the worker that a notification was given up."""
    logger.error("payment %s: given up after %d retries: %s", request.args[0], len(chain), exception)
