"""Tasks about orders."""

from celery import shared_task
from shop.celery import app

from celery_ext import Call, get, send_many

from .models import Order


@shared_task(autoretry_for=(OSError,), delay_chain="10s,1m,10m", dead_letter_queue="unreminded")
def remind(number: int) -> str:
    """Reminds of an order. Like every task it may run twice, so it looks whether that is still to be done."""
    changed = Order.objects.filter(pk=number, is_paid=False, is_reminded=False).update(is_reminded=True)
    return "reminded" if changed else "nothing to do"


@shared_task
def remind_lost() -> int:
    """Reminds of orders whose reminder does not wait, such as because the web server died after the commit.

    Beat runs it. It sends one reminder a second, so that the mail server keeps up.
    """
    orders = {order.reminder_id: order.pk for order in Order.objects.filter(is_paid=False, is_reminded=False)}
    lost = [task_id for task_id, task in get(app, orders).items() if task is None]
    calls = (Call((orders[task_id],), countdown=second, task_id=task_id) for second, task_id in enumerate(lost, 1))
    return send_many(app, remind, calls)
