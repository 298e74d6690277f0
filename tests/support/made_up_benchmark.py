"""Results and facts of a benchmark that never ran."""

from dataclasses import replace
from datetime import UTC, datetime

from tests.bench.facts import Entrant, Facts
from tests.bench.results import Gap, Results, Sample

HASH, LIST = "kombu-delayq, hash", "kombu-delayq, list"
FACTS = Facts(
    machine={"cores": "2", "Redis": "7.0.15"},
    contenders=[
        Entrant(HASH, {"celery": "5.7.0"}, "`celery worker`"),
        Entrant(LIST, {"celery": "5.7.0"}, "`celery worker`"),
        Entrant("Celery", {"celery": "5.7.0"}, "`celery worker`"),
        Entrant("Hare", {"hare": "1.0"}, "`hare run | tee`"),
        Entrant("Absent", {}, "`absent`", "no npm on the PATH"),
    ],
    date=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    command="make bench",
    took_s=1712.4,
    numbers={
        "cancelled": "300",
        "cancel_s": "3",
        "transfer_s": "6",
        "grace_s": "25",
        "idle_s": "4",
        "alone": "20,000",
        "alone_s": "4",
        "per_s": "100",
        "seconds": "60",
        "burst": "20,000",
    },
)
QUICK = replace(FACTS, quick=True)


def results(*samples: tuple[str, str, int, float], gaps: tuple[Gap, ...] = ()) -> Results:
    """Makes results of samples: measure, contender, size, value."""
    return Results([Sample(*fields) for fields in samples], list(gaps))
