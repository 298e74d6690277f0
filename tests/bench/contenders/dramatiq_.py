"""dramatiq on Redis. Run as a module it is the producer's program."""

import os
import signal
from math import ceil
from time import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tests.bench.journal import arrive
from tests.bench.program import PAYLOAD, Cannot, Producer, serve

broker = RedisBroker(url=os.environ["BENCH_SERVER"])
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="arrive")
def task(due: float, payload: str) -> None:
    """Notes when it begins."""
    arrive(due)


class DramatiqProducer(Producer):
    """Sends as any app does."""

    def one(self, due: float) -> str:
        """``send_with_options`` with a delay, or ``send``."""
        delay_s = due - time()
        if delay_s > 0:
            return task.send_with_options(args=(due, PAYLOAD), delay=ceil(delay_s * 1000)).message_id
        return task.send(due, PAYLOAD).message_id

    def cancel(self, identity: str) -> None:
        """Not possible."""
        raise Cannot("cannot: dramatiq has no operation that takes a message back")

    def waiting(self) -> int:
        """Returns how many messages the delay queue has; one leaves it when it is in the other queue."""
        return int(broker.client.hlen(f"{broker.namespace}:{task.queue_name}.DQ.msgs"))


def consume() -> None:
    """Runs a worker without the command's parent process, which does not talk to Redis."""
    dramatiq.Worker(broker).start()
    signal.pause()


if __name__ == "__main__":
    serve(DramatiqProducer)
