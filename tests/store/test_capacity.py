"""What ``docs/capacity.py`` says of memory, beside what a real Redis takes."""

import json

import pytest

from kombu_delayq.store import DelayStore
from tests.bench.targets.capacity.constants import model
from tests.bench.targets.load import fill, within_the_last_hour, within_the_next_hour
from tests.support import ROOT


@pytest.mark.parametrize("backup", ["hash"], indirect=True)
@pytest.mark.parametrize("size", [1_000, 3_000])
def test_memory_is_what_was_reckoned(store: DelayStore, size: int) -> None:
    """Messages of several queues, some of them ready, take what the script says, within 15 %."""
    before = used(store)
    for queue in ("orders", "letters"):
        fill(store, 3_000, within_the_next_hour(), lambda: size, queue)
    fill(store, 2_000, within_the_last_hour(), lambda: size, "ready")
    while store.delivery.transfer("ready").moved:
        pass
    costs = json.loads((ROOT / "docs" / "capacity.json").read_text(encoding="utf-8"))
    capacity = model()
    load = capacity.Load(waiting=6_000, queues=2, ready=2_000, size=size, workers=0)
    said = sum(capacity.Capacity(costs, load, capacity.Node()).memory().values())
    assert used(store) - before == pytest.approx(said, rel=0.15)


def used(store: DelayStore) -> int:
    """Returns the bytes that Redis takes for data."""
    return int(store.client.info("memory")["used_memory"])
