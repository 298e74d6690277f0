"""``Outage``: told once, retried ever more slowly."""

import itertools
import logging
from time import monotonic

import pytest

from kombu_delayq.transfer.backoff import BACKOFF_S, Outage

LOGGER = logging.getLogger("test_outage")


@pytest.fixture
def outage(caplog: pytest.LogCaptureFixture) -> Outage:
    caplog.set_level(logging.DEBUG, LOGGER.name)
    return Outage(LOGGER)


def test_an_outage_is_told_once_with_its_reason(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    """However often the attempts fail, one error is logged, with the first reason."""
    for reason in ("refused", "timed out", "refused"):
        outage.goes_on(ConnectionError(reason))
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert "ConnectionError: refused" in record.getMessage()


def test_pauses_grow_to_the_longest(outage: Outage) -> None:
    """The pauses between attempts double from the first to the longest, and stay there."""
    pauses_s = [outage.goes_on(ConnectionError()) for _ in range(10)]
    first_s, longest_s = BACKOFF_S
    assert pauses_s[0] == first_s
    assert all(pause == min(2 * before, longest_s) for before, pause in itertools.pairwise(pauses_s))
    assert pauses_s[-1] == longest_s


def test_the_end_is_told_once(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    """The first answer after an outage is logged, the further ones are not."""
    outage.goes_on(ConnectionError())
    caplog.clear()
    outage.is_over()
    outage.is_over()
    [record] = caplog.records
    assert record.levelno == logging.INFO


def test_the_end_of_an_outage_that_began_earlier_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever takes an outage over does not log its beginning again, and logs its end with its whole length."""
    caplog.set_level(logging.DEBUG, LOGGER.name)
    outage = Outage(LOGGER, since=monotonic() - 60)
    outage.goes_on(ConnectionError())
    outage.is_over()
    [record] = caplog.records
    assert record.levelno == logging.INFO
    assert "after 60." in record.getMessage()
    assert outage.since is None


def test_answers_without_an_outage_say_nothing(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    """While all is well nothing is logged."""
    outage.is_over()
    assert caplog.records == []


def test_the_next_outage_begins_anew(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    """After an answer, the next failure is logged again and its pauses start short again."""
    for _ in range(5):
        outage.goes_on(ConnectionError("one"))
    outage.is_over()
    caplog.clear()
    assert outage.goes_on(OSError("two")) == BACKOFF_S[0]
    [record] = caplog.records
    assert "OSError: two" in record.getMessage()
