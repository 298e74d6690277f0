"""What happens to orders later."""

from celery import shared_task

from orders import bank
from orders.models import Order


@shared_task
def cancel_unpaid(number: int) -> None:
    """Cancels an order that is still open."""
    Order.objects.filter(pk=number, state="open").update(state="cancelled")


@shared_task(delay_chain="4m,10m,1h", autoretry_for=(bank.Away,))
def charge(number: int) -> None:
    """Charges an order, and tries again on a schedule while the bank is away."""
    bank.charge(number)
    Order.objects.filter(pk=number).update(state="paid")
