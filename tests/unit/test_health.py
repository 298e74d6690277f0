"""From where on something is not well, and how bad it is."""

import pytest

from celery_ext import health
from celery_ext.health import Level
from celery_ext.journal.checks import ALERTS
from celery_ext.journal.state import BEHIND_S

OK, WARNING, ERROR = Level.OK, Level.WARNING, Level.ERROR


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (health.of_leader(leads=True, delayed=5), OK),
        (health.of_leader(leads=False, delayed=0), WARNING),
        (health.of_leader(leads=False, delayed=5), ERROR),
        (health.of_overdue(4.9, is_held=False), OK),
        (health.of_overdue(5.0, is_held=False), WARNING),
        (health.of_overdue(60.0, is_held=False), ERROR),
        (health.of_overdue(60.0, is_held=True), OK),
        (health.of_waits(599.0, is_paused=False), OK),
        (health.of_waits(600.0, is_paused=False), WARNING),
        (health.of_waits(600.0, is_paused=True), OK),
        (health.of_waits(None, is_paused=False), OK),
        (health.of_consumers(1, 0, 0, is_of_letters=False), WARNING),
        (health.of_consumers(0, 0, 0, is_of_letters=False), OK),
        (health.of_consumers(1, 1, 0, is_of_letters=False), OK),
        (health.of_consumers(1, 0, 1, is_of_letters=False), OK),
        (health.of_consumers(1, None, None, is_of_letters=False), OK),
        (health.of_consumers(1, 0, 0, is_of_letters=True), OK),
        (health.of_memory(0.79), OK),
        (health.of_memory(0.8), WARNING),
        (health.of_memory(0.95), ERROR),
    ],
)
def test_a_level(found: Level, level: Level) -> None:
    """It is the same wherever it is shown."""
    assert found is level


def test_promotion_is_behind_for_the_page_as_for_the_alert() -> None:
    """The rule has the bound of the journal's own state."""
    [rule] = [alert for alert in ALERTS if alert.name == "DelayqJournalNotPromoted"]
    assert rule.expr.endswith(f" > {BEHIND_S:g}")
