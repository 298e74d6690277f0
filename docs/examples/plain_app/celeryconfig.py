"""Settings of the shop."""

import os

broker_url = os.environ.get("SHOP_REDIS", "redis://localhost:6379") + "/0"
result_backend = os.environ.get("SHOP_REDIS", "redis://localhost:6379") + "/1"
broker_connection_retry_on_startup = True
