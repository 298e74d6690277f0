"""The Celery app of the garage: ``celery -A tasks worker --queues reminders``."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from celery import Celery

#: Where the task notes what it has done.
DIRECTORY = Path(os.environ.get("GARAGE_DIRECTORY", "data"))

app = Celery("garage", broker=os.environ.get("GARAGE_BROKER", "redis://localhost:6379/0"))
app.conf.broker_transport = "kombu_delayq.transport:Transport"
app.conf.broker_connection_retry_on_startup = True
app.conf.task_ignore_result = True


@app.task(bind=True, name="garage.remind", acks_late=True)
def remind(self: Any, car: int, service: str, language: str) -> None:
    """Reminds the owner of a car of its next service. A garage would send an e-mail here."""
    began = datetime.now(UTC)
    sent = {"car": car, "due_at": self.request.eta, "sent_at": began.isoformat()}
    directory = DIRECTORY / "sent"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{os.getpid()}.json").open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(sent)}\n")
