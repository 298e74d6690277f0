"""Has a JVM service print an invoice: ``python print_invoice.py NUMBER [SECONDS]``. Prints its answer."""

import sys

from tasks import app

number = sys.argv[1]
seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
invoice = app.send_task("invoices.print", (number,), countdown=seconds)
print(f"task {invoice.id} is due in {seconds:g} s", flush=True)
print(invoice.get(timeout=seconds + 30))
