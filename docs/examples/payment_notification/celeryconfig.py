"""Settings of the payment service."""

import os

broker_url = os.environ.get("PAYMENTS_REDIS", "redis://localhost:6379") + "/0"
broker_transport = "kombu_delayq.transport:Transport"
result_backend = os.environ.get("PAYMENTS_REDIS", "redis://localhost:6379") + "/1"
broker_connection_retry_on_startup = True
