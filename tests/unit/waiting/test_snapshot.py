"""``Snapshot``: which messages a filter matched, in little memory."""

import tracemalloc

from celery_ext.waiting import Selection, Snapshot


def test_a_snapshot_needs_few_bytes_a_message() -> None:
    """Each message costs 8 bytes and one for what is done, however long its id is, and at no time twice as much."""
    tracemalloc.start()
    try:
        snapshot = Snapshot(Selection())
        for n in range(50_000):
            snapshot.add("a queue with a long name", f"{n:0200}", float(n))
        snapshot.close(5.0)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 50_000 * 11
    assert peak < 50_000 * 20
    assert (len(snapshot), snapshot.left, snapshot.latest_ms, snapshot.as_of_ms) == (50_000, 50_000, 49_999.0, 5.0)


def test_a_message_is_found_until_it_is_done_with() -> None:
    """What was added is found by queue and id, until it is done with; nothing else is found."""
    snapshot = Snapshot(Selection())
    for queue, identity in (("q", "i"), ("q", "i"), ("p", "i"), ("q", "\udcff"), ("q", "")):
        snapshot.add(queue, identity, 1.0)
    snapshot.close(0.0)
    assert len(snapshot) == 4
    place = snapshot.find("q", "i")
    assert place is not None
    assert snapshot.find("q", b"i") == place
    assert snapshot.find("q", b"\xff") is not None
    for queue, identity in (("p", "j"), ("qi", ""), ("", "qi")):
        assert snapshot.find(queue, identity) is None
    snapshot.finish(place)
    snapshot.finish(place)
    assert (snapshot.find("q", "i"), snapshot.left) == (None, 3)
    assert snapshot.find("p", "i") is not None
