"""Settings of the shop. Every process of the app has them, publishers and workers alike."""

import os

broker_url = os.environ.get("SHOP_REDIS", "redis://localhost:6379") + "/0"
broker_transport = "kombu_delayq.transport:Transport"
broker_transport_options = {"layout": "redisson"}
result_backend = broker_url
broker_connection_retry_on_startup = True
task_default_queue = "mails"
task_routes = {"invoices.*": {"queue": "invoices"}}
