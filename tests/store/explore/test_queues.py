"""Every order of the calls of publishers, and of leaders that forget a queue without messages."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.store.explore.test_kernel import SECONDS
from tests.support.store.explorer import GRAIN_MS, Database, Violation, search
from tests.support.store.worlds import QUEUE, Fleet, FleetWorld, message_of

pytestmark = pytest.mark.timeout(SECONDS + 60)


class QueuesWorld(FleetWorld):
    """Publishers of a queue that had messages, and leaders."""

    def begin(self) -> Fleet:
        """The queue is known, and empty."""
        fleet = super().begin()
        self.store.queues.know(QUEUE)
        self.prepare("offer_once", "offer", "forget_empty")
        return fleet

    def run_offer(self, store: DelayStore, identity: str, hour: str) -> str:
        """A publisher stores a message."""
        due = self.begun_ms + int(hour) * GRAIN_MS - (0 if int(hour) else 1000)
        store.delivery.offer(QUEUE, Offer(identity, repr(due), 0, message_of(identity, int(hour))))
        return "offered"

    def run_forget(self, store: DelayStore) -> str:
        """A leader forgets the queue if it has no messages."""
        return str(store.queues.forget_empty([QUEUE]))

    def check(self, fleet: Fleet, database: Database) -> None:
        """What belongs together agrees."""
        self.places(fleet, database)

    def end(self, fleet: Fleet) -> None:
        """A queue with messages is known."""
        has_messages = self.store.queues.size(QUEUE) or self.store.client.exists(QUEUE)
        if has_messages and self.store.queues.names() != [QUEUE]:
            raise Violation(f"{QUEUE} has messages, and the queues are {self.store.queues.names()}")


@pytest.mark.parametrize("hour", [0, 1])
def test_a_queue_with_messages_is_known(store: DelayStore, hour: int) -> None:
    """Whenever a message comes while leaders forget the queue, the queue is known in the end, also if it is due."""
    actors = [
        [f"begin P offer a {hour}"],
        [f"begin Q offer b {hour}"],
        ["begin F forget"],
        ["begin G forget"],
        ["transfer"],
    ]
    search(QueuesWorld(store, actors), store.client, hour, SECONDS)
