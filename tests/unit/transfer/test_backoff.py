"""``Backoff`` and ``Outage``: logs an outage once, and tries again more and more slowly."""

import itertools
import logging
from time import monotonic

import pytest

from kombu_delayq.background import Outage
from kombu_delayq.redis import BACKOFF_S

LOGGER = logging.getLogger("test_backoff")


@pytest.fixture
def outage(caplog: pytest.LogCaptureFixture) -> Outage:
    caplog.set_level(logging.DEBUG, LOGGER.name)
    return Outage(LOGGER, "again after %.1f s")


def test_an_outage_is_told_once_with_its_reason(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    """However often the attempts fail, one error is logged, with the first reason."""
    for reason in ("refused", "timed out", "refused"):
        outage.failed(reason)
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "refused"


def test_pauses_grow_to_the_longest(outage: Outage) -> None:
    """The pauses between attempts double from the first to the longest, and stay there."""
    pauses_s = [outage.failed("away") for _ in range(10)]
    first_s, longest_s = BACKOFF_S
    assert pauses_s[0] == first_s
    assert all(pause == min(2 * before, longest_s) for before, pause in itertools.pairwise(pauses_s))
    assert pauses_s[-1] == longest_s


def test_the_end_is_told_once(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    """The first answer after an outage is logged, the further ones are not."""
    outage.failed("away")
    caplog.clear()
    outage.succeeded()
    outage.succeeded()
    [record] = caplog.records
    assert record.levelno == logging.INFO


def test_the_end_of_an_outage_that_began_earlier_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever takes an outage over does not log its beginning again, and logs its end with its whole length."""
    caplog.set_level(logging.DEBUG, LOGGER.name)
    outage = Outage(LOGGER, "again after %.1f s", down_since=monotonic() - 60)
    outage.failed("away")
    outage.succeeded()
    [record] = caplog.records
    assert record.levelno == logging.INFO
    assert "after 60." in record.getMessage()
    assert outage.down_since is None


def test_answers_without_an_outage_say_nothing(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    """While all is well nothing is logged."""
    outage.succeeded()
    assert caplog.records == []


def test_the_next_outage_begins_anew(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    """After an answer, the next failure is logged again and its pauses start short again."""
    for _ in range(5):
        outage.failed("one")
    outage.succeeded()
    caplog.clear()
    assert outage.failed("two") == BACKOFF_S[0]
    [record] = caplog.records
    assert record.getMessage() == "two"
