"""Leaves a cart: ``python leave_cart.py CUSTOMER [SECONDS]``. Prints the reminder, SECONDS later."""

import sys
import time

from tasks import remind

customer = sys.argv[1]
seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
reminder = remind.apply_async((customer, time.time()), countdown=seconds)
print(f"task {reminder.id} runs in {seconds:g} s", flush=True)
print(reminder.get(timeout=seconds + 30))
