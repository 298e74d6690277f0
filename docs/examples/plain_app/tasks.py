"""Tasks of a shop that reminds its customers of the carts they left."""

import time

from celery import Celery

app = Celery("shop")
app.config_from_object("celeryconfig")


@app.task
def remind(customer: str, left_at: float) -> str:
    """Sends a reminder. Returns what was done."""
    return f"reminded {customer} {time.time() - left_at:.2f} s after the cart was left"
