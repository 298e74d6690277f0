"""Messages whose queue is moved from one form of backup to the other while somebody looks for them."""

from threading import Thread

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.store.fixtures import MakeStore

IDS = [f"id{number}" for number in range(4000)]
DUE = "4102444800000"


@pytest.mark.parametrize("to_own", [True, False])
def test_every_message_is_found_by_its_id_while_its_queue_is_converted(
    make_store: MakeStore, backup: str, to_own: bool
) -> None:
    """Who looks for ids finds each of them, whichever of the forms they are moved to meanwhile."""
    other = {"hash": "list", "list": "hash"}[backup]
    first, second = (other, backup) if to_own else (backup, other)
    source, target, looking = make_store(backup=first), make_store(backup=second), make_store()
    for at in range(0, len(IDS), 200):
        source.offer("q", *(Offer(each, DUE, 0, f'{{"headers": {{"id": "{each}"}}}}') for each in IDS[at : at + 200]))
    converting = Thread(target=_convert, args=(target,), daemon=True)
    converting.start()
    missing: set[str] = set()
    looked = 0
    while converting.is_alive() or not looked:
        for at in range(0, len(IDS), 50):
            missing.update(set(IDS[at : at + 50]) - looking.get(["q"], IDS[at : at + 50]).keys())
        looked += 1
    converting.join()
    assert missing == set()
    assert target.purge("q") == len(IDS)


def _convert(target: DelayStore) -> None:
    while target.convert("q").left:
        pass
