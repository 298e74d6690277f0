"""A service on kombu's ``ConsumerMixin``: each job takes its time. It notes all that it gets in a list of Redis.

MIXIN_CONF has its arguments, as JSON: the URL, transport and transport options of the broker, the prefetch count or
null, the seconds that a job takes, and the URL of the Redis with the list ``jobs``.
"""

import json
import os
import time
from typing import Any

import redis
from kombu import Connection, Queue
from kombu.mixins import ConsumerMixin


class Service(ConsumerMixin):
    """Consumes the queue ``jobs``. Prints ``ready`` when it begins."""

    def __init__(self, conf: dict[str, Any]) -> None:
        self.connection = Connection(
            conf["broker"], transport=conf["transport"], transport_options=conf["transport_options"]
        )
        self._conf = conf
        self._notes = redis.Redis.from_url(conf["notes"])

    def get_consumers(self, consumer: Any, channel: Any) -> list[Any]:
        """Returns the one consumer of the service."""
        return [consumer([Queue("jobs")], on_message=self.on_message, prefetch_count=self._conf["prefetch_count"])]

    def on_consume_ready(self, *args: Any, **kwargs: Any) -> None:
        """Tells that it begins, or begins again after a lost connection."""
        print("ready", flush=True)

    def on_message(self, message: Any) -> None:
        """Does a job."""
        self._notes.rpush("jobs", json.dumps([os.getpid(), message.payload]))
        time.sleep(self._conf["job_s"])
        message.ack()


if __name__ == "__main__":
    Service(json.loads(os.environ["MIXIN_CONF"])).run()
