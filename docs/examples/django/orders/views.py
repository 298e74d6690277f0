"""What customers do."""

import asyncio
from functools import partial

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from shop.celery import app

from celery_ext import cancel, reschedule

from .models import Order
from .tasks import remind


@csrf_exempt  # only because this example is called from the shell
@require_POST
@transaction.atomic
def place(request: HttpRequest) -> JsonResponse:
    """Places an order, and has its customer reminded later. If anything fails here, there is neither."""
    order = Order.objects.create(customer=request.POST["customer"])
    wait_s = float(request.POST.get("wait", 3600))
    remind.apply_async_on_commit((order.pk,), countdown=wait_s, task_id=order.reminder_id)
    if not order.customer:
        raise ValueError("an order needs a customer")  # the order is rolled back, and no task is sent
    return JsonResponse({"order": order.pk, "reminder": order.reminder_id})


@csrf_exempt
@require_POST
@transaction.atomic
def pay(request: HttpRequest, number: int) -> JsonResponse:
    """Notes that an order is paid, and cancels its reminder once that is certain."""
    order = Order.objects.select_for_update().get(pk=number)
    order.is_paid = True
    order.save()
    transaction.on_commit(partial(cancel, app, order.reminder_id))
    return JsonResponse({"order": number})


@csrf_exempt
@require_POST
async def later(request: HttpRequest, number: int) -> JsonResponse:
    """Puts a reminder off by an hour, from an async view."""
    order = await Order.objects.aget(pk=number)
    outcome = await asyncio.to_thread(reschedule, app, order.reminder_id, countdown=3600)
    return JsonResponse({"order": number, "outcome": outcome})
