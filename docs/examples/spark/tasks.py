"""The Celery app of the shop: ``celery -A tasks worker --queues closing``."""

import json
import os
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from celery import Celery

#: Where the task writes down what it has done.
DIRECTORY = Path(os.environ.get("SHOP_DIRECTORY", "data"))

app = Celery("shop", broker=os.environ.get("SHOP_BROKER", "redis://localhost:6379/0"))
app.conf.broker_transport = "kombu_delayq.transport:Transport"
app.conf.broker_connection_retry_on_startup = True
app.conf.task_ignore_result = True


@app.task(bind=True, name="shop.close_unpaid_order", acks_late=True)
def close_unpaid_order(
    self: Any, order_id: str, customer: str, items: list[dict[str, Any]], amount: Decimal, currency: str
) -> None:
    """Closes an order that was not paid in time, so that others can buy what is in it.

    A shop would ask its database for the order here, and leave alone what is paid or closed: a payment may come in
    the very moment, and Celery may deliver a task twice.
    """
    began = datetime.now(UTC)
    if sum((item["quantity"] * item["price"] for item in items), Decimal()) != amount:
        raise ValueError(f"{order_id} of {customer}: the prices of its items do not make {amount} {currency}")
    closed = {
        "order_id": order_id,
        "amount": str(amount),
        "units": sum(item["quantity"] for item in items),
        "due_at": self.request.eta,
        "closed_at": began.isoformat(),
        "worker": self.request.hostname,
    }
    directory = DIRECTORY / "closed"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{os.getpid()}.json").open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(closed)}\n")
