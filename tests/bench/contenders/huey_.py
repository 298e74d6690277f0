"""huey on Redis. Run as a module it is the producer's program."""

import os
from datetime import UTC, datetime
from time import time

from huey import RedisHuey

from tests.bench.journal import arrive
from tests.bench.program import PAYLOAD, Producer, serve

huey = RedisHuey("bench", url=os.environ["BENCH_SERVER"])


@huey.task()
def task(due: float, payload: str) -> None:
    """Notes when it begins."""
    arrive(due)


class HueyProducer(Producer):
    """Enqueues as any app does."""

    def one(self, due: float) -> str:
        """``schedule`` with an eta, or a call."""
        if due > time():
            return task.schedule((due, PAYLOAD), eta=datetime.fromtimestamp(due, UTC)).id
        return task(due, PAYLOAD).id

    def cancel(self, identity: str) -> None:
        """Notes that it shall not be run; it stays until it is due."""
        huey.revoke_by_id(identity)


def consume() -> None:
    """Runs a consumer with its worker and scheduler."""
    huey.create_consumer().run()


if __name__ == "__main__":
    # A task is found by the name of its module, which is another one here.
    from tests.bench.contenders.huey_ import HueyProducer as Imported

    serve(Imported)
