"""A process that cancels, reschedules or runs tasks while others do the same.

It prints ``ready``, and reads one line of JSON: the operation, the ids, when to begin, and how long to take. Then it
prints the outcomes.
"""

import json
import os
import sys
import time
from datetime import UTC, datetime

from celery import Celery

import celery_ext
from tests.support.workers.harness import TRANSPORT

#: Few ids in a call, so that the calls of all processes mix.
IDS_A_CALL = 20


def race(app: Celery, act: str, ids: list[str], begin: float, spread_s: float, eta: float | None) -> dict[str, str]:
    """Acts on some ids at a time, evenly over a time."""
    options = {} if eta is None else {"eta": datetime.fromtimestamp(eta, UTC)}
    outcomes = {}
    for first in range(0, len(ids), IDS_A_CALL):
        time.sleep(max(0.0, begin + spread_s * first / len(ids) - time.time()))
        outcomes.update(getattr(celery_ext, act)(app, ids[first : first + IDS_A_CALL], **options))
    return outcomes


if __name__ == "__main__":
    app = Celery("racer", set_as_current=False)
    app.conf.update(json.loads(os.environ["PROJ_CONF"]), broker_transport=TRANSPORT)
    celery_ext.select(app).count()  # connects
    print("ready", flush=True)
    print(json.dumps(race(app, **json.loads(sys.stdin.readline()))))
