"""A day in a moment."""

import pytest

from orders import bank
from orders.models import Order
from orders.tasks import cancel_unpaid, charge

pytestmark = pytest.mark.django_db


@pytest.fixture
def order(client, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        client.post("/orders/", {"item": "book"})
    return Order.objects.get()


def test_an_order_that_is_not_paid_is_cancelled(delayed_tasks, order):
    assert delayed_tasks.has("orders.tasks.cancel_unpaid", in_="24h", args=(order.pk,))

    delayed_tasks.advance("23h")
    order.refresh_from_db()
    assert order.state == "open"

    delayed_tasks.advance("1h")
    order.refresh_from_db()
    assert order.state == "cancelled"


def test_the_bank_is_asked_again(delayed_tasks, client, order, monkeypatch):
    client.post(f"/orders/{order.pk}/payment/")
    delayed_tasks.run_due()
    assert delayed_tasks.has(charge, in_="4m")
    assert delayed_tasks.has(cancel_unpaid)

    monkeypatch.setattr(bank, "charge", lambda number: None)
    delayed_tasks.advance("4m")
    assert [ran.state for ran in delayed_tasks.ran] == ["RETRY", "SUCCESS"]

    delayed_tasks.advance("24h")
    order.refresh_from_db()
    assert order.state == "paid"
