"""A publisher that names of kombu-delayq the transport alone. It prints JSON of what became of its calls.

Its settings are in PROJ_CONF.
"""

import json
import os
import sys
from typing import Any

from celery import Celery
from kombu import Exchange

app = Celery("publisher")
app.conf.update(json.loads(os.environ["PROJ_CONF"]))


@app.task
def add(x: int, y: int) -> int:
    """Adds."""
    return x + y


def published() -> dict[str, Any]:
    """Publishes with options that the app does not know."""
    report = {}
    to_all = {"exchange": "all", "exchange_type": "fanout", "declare": [Exchange("all", type="fanout")]}
    for name, options in {
        "level": {"delay_level": 3},
        "no level": {"delay_level": None},
        "wrong chain": {"delay_chain": "4m,x"},
        "chain": {"delay_chain": "4m"},
        "fanout": {"delay_level": 3, **to_all},
    }.items():
        try:
            add.apply_async((1, 2), **options)
            report[name] = "sent"
        except Exception as error:
            report[name] = f"{type(error).__name__}: {error}"
    report["celery_ext"] = "celery_ext" in sys.modules
    return report


if __name__ == "__main__":
    print(json.dumps(published()))
