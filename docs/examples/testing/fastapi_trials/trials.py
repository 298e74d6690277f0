"""A service in which a trial ends after 14 days, with a reminder two days before, unless somebody pays."""

from datetime import UTC, datetime, timedelta

from celery import Celery
from fastapi import FastAPI
from pydantic import BaseModel

import celery_ext

celery = Celery("trials", broker="delayq://localhost:6379/0")
app = FastAPI()

LENGTH = timedelta(days=14)
REMINDER = timedelta(days=12)

#: The state of each user, and the mails that were sent.
states: dict[str, str] = {}
mails: list[str] = []


class Trial(BaseModel):
    """Who begins a trial."""

    user: str


@app.post("/trials", status_code=201)
async def begin(trial: Trial) -> dict[str, str]:
    """Begins a trial, and plans its end."""
    states[trial.user] = "trial"
    ends = datetime.now(UTC) + LENGTH
    await celery_ext.asend(celery, end, (trial.user,), eta=ends, task_id=f"end of {trial.user}")
    await celery_ext.asend(
        celery, remind, (trial.user,), countdown=REMINDER.total_seconds(), task_id=f"mail to {trial.user}"
    )
    return {"ends": ends.isoformat()}


@app.post("/trials/{user}/payment")
def pay(user: str) -> None:
    """Keeps a user, whose trial does not end then."""
    states[user] = "paid"
    celery_ext.cancel(celery, [f"end of {user}", f"mail to {user}"])


@celery.task
def remind(user: str) -> None:
    """Says that a trial ends soon."""
    mails.append(f"{user}, your trial ends in two days")


@celery.task
def end(user: str) -> None:
    """Ends a trial."""
    states[user] = "ended"
