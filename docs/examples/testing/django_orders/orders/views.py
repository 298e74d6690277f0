"""Orders are placed and paid."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse

from orders.models import Order
from orders.tasks import cancel_unpaid, charge


@transaction.atomic
def place(request: HttpRequest) -> JsonResponse:
    """Places an order, which is cancelled if nobody pays within a day."""
    order = Order.objects.create(item=request.POST["item"])
    transaction.on_commit(lambda: cancel_unpaid.apply_async((order.pk,), countdown=86_400))
    return JsonResponse({"number": order.pk})


def pay(request: HttpRequest, number: int) -> JsonResponse:
    """Lets the bank charge an order."""
    charge.delay(number)
    return JsonResponse({})
