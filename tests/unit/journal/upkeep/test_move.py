"""A journal is moved to another database, also in parts, and also while it is in use."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from threading import Event, Thread

import pytest

from celery_ext.journal.table import Journal, Watermarks
from celery_ext.journal.upkeep.move import PAGE, move
from kombu_delayq.errors import JournalInUse, OtherJournal
from tests.support.journal.additions import DUE_MS, addition
from tests.support.servers.postgres import PrivatePostgres

#: What is moved where.
WAYS = [("sqlite", "postgres"), ("postgres", "sqlite"), ("sqlite", "sqlite"), ("postgres", "postgres")]


@pytest.fixture(params=WAYS, ids="-to-".join)
def journals(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Journal, Journal]]:
    """A source and a target."""
    server: PrivatePostgres = request.getfixturevalue("postgres_server")
    urls = [
        f"sqlite:///{tmp_path}/journal-{at}.db" if kind == "sqlite" else server.make_schema()
        for at, kind in enumerate(request.param)
    ]
    source, target = map(Journal, urls)
    yield source, target
    for journal in (source, target):
        journal.engine.dispose()


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Journal, Journal]:
    """A source and a target in SQLite."""
    source, target = (Journal(f"sqlite:///{tmp_path}/journal-{at}.db") for at in (1, 2))
    return source, target


def _move(source: Journal, target: Journal) -> int:
    return sum(move(source, target, watch_s=0))


def test_everything_is_moved(journals: tuple[Journal, Journal]) -> None:
    """Messages keep their numbers and states, and the journal its id, its epochs and its watermarks."""
    source, target = journals
    source.add([addition(number, queue=f"queue-{number % 3}") for number in range(PAGE + 10)])
    source.add([addition(1, queue="nul\0")._replace(id="\udcff", priority=9, expire_ms=5)], offered=True)
    source.set_watermarks(5000.0, {"slow": 3000.0})
    source.end_epoch(6000.0)
    source.mark([1, 2])
    source.next_beat()
    assert _move(source, target) == PAGE + 11
    for queue in (*source.queues(), "nul\0"):
        assert target.browse(queue, count=5000) == source.browse(queue, count=5000)
    assert target.get(["\udcff"], None) == source.get(["\udcff"], None)
    assert target.sizes() == source.sizes()
    assert target.count("queue-1", DUE_MS + 1) == source.count("queue-1", DUE_MS + 1)
    assert (target.id, target.epoch(), target.beat()) == (source.id, 2, 1)
    assert target.epochs() == source.epochs()
    assert target.watermarks() == source.watermarks() == Watermarks(5000.0, {"slow": 3000.0})
    assert target.stats().promoted == 2
    [number] = target.add([addition(5000)])
    assert number is not None
    assert number > 2**40


def test_another_run_goes_on_where_one_was_cut_off(pair: tuple[Journal, Journal]) -> None:
    """Each page is moved once, whenever the run ends."""
    source, target = pair
    source.add([addition(number) for number in range(3 * PAGE)])
    assert list(islice(move(source, target, watch_s=0), 1)) == [PAGE]
    assert target.count("orders") == PAGE
    assert _move(source, target) == 2 * PAGE
    assert target.browse("orders", count=5000) == source.browse("orders", count=5000)


def test_another_run_brings_what_has_changed_since(journals: tuple[Journal, Journal]) -> None:
    """New rows come, cancelled ones leave, promoted ones are marked; what the target has cancelled stays so."""
    source, target = journals
    source.add([addition(number) for number in range(6)])
    _move(source, target)
    source.add([addition(6)])
    source.delete(["id-0"])
    source.mark([row.seq for row in source.get(["id-1"])])
    changed = source.get(["id-2"])[0]
    source.replace([(changed.seq, addition(2, DUE_MS + 99_000))])
    target.delete(["id-3"])
    target.mark([row.seq for row in target.get(["id-4"])])
    target.add([addition(7)])
    assert _move(source, target) == 5
    assert [row.id for row in target.browse("orders")] == ["id-5", "id-6", "id-7", "id-2"]
    assert [row.id for row in target.offered("orders")] == ["id-1", "id-4"]
    assert target.sizes() == {"orders": (4, 2)}
    assert _move(source, target) == 0


def test_the_journal_of_others_is_left_alone(pair: tuple[Journal, Journal], tmp_path: Path) -> None:
    """A target with messages of its own, or of another source, is refused, and so is the source itself."""
    source, target = pair
    source.add([addition(1)])
    target.add([addition(2)])
    with pytest.raises(OtherJournal, match="messages of another journal"):
        _move(source, target)
    with pytest.raises(OtherJournal, match="to itself"):
        _move(source, source)
    moved = Journal(f"sqlite:///{tmp_path}/moved.db")
    _move(source, moved)
    with pytest.raises(OtherJournal, match="messages of another journal"):
        _move(target, moved)


@pytest.mark.parametrize(("use", "reason"), [("next_beat", "promotes"), ("add", "publishes")])
def test_a_source_in_use_is_not_moved_unless_told(pair: tuple[Journal, Journal], use: str, reason: str) -> None:
    """Somebody who works with the source is noticed."""
    source, target = pair
    source.add([addition(0)])
    is_enough = Event()

    def work() -> None:
        number = 0
        while not is_enough.wait(0.01):
            number += 1
            source.next_beat() if use == "next_beat" else source.add([addition(number)])

    worker = Thread(target=work)
    worker.start()
    try:
        with pytest.raises(JournalInUse, match=reason):
            list(move(source, target, watch_s=0.5))
        assert sum(move(source, target, in_use=True)) >= 1
    finally:
        is_enough.set()
        worker.join()
    _move(source, target)
    assert target.count("orders") == source.count("orders")
