"""``Backoff``: logs an outage once, and tries again more and more slowly."""

import itertools
import logging
from time import monotonic

import pytest

from kombu_delayq.transfer.backoff import BACKOFF_S, Backoff

LOGGER = logging.getLogger("test_backoff")


@pytest.fixture
def backoff(caplog: pytest.LogCaptureFixture) -> Backoff:
    caplog.set_level(logging.DEBUG, LOGGER.name)
    return Backoff(LOGGER)


def test_an_outage_is_told_once_with_its_reason(backoff: Backoff, caplog: pytest.LogCaptureFixture) -> None:
    """However often the attempts fail, one error is logged, with the first reason."""
    for reason in ("refused", "timed out", "refused"):
        backoff.failed(ConnectionError(reason))
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert "ConnectionError: refused" in record.getMessage()


def test_pauses_grow_to_the_longest(backoff: Backoff) -> None:
    """The pauses between attempts double from the first to the longest, and stay there."""
    pauses_s = [backoff.failed(ConnectionError()) for _ in range(10)]
    first_s, longest_s = BACKOFF_S
    assert pauses_s[0] == first_s
    assert all(pause == min(2 * before, longest_s) for before, pause in itertools.pairwise(pauses_s))
    assert pauses_s[-1] == longest_s


def test_the_end_is_told_once(backoff: Backoff, caplog: pytest.LogCaptureFixture) -> None:
    """The first answer after an outage is logged, the further ones are not."""
    backoff.failed(ConnectionError())
    caplog.clear()
    backoff.succeeded()
    backoff.succeeded()
    [record] = caplog.records
    assert record.levelno == logging.INFO


def test_the_end_of_an_outage_that_began_earlier_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever takes an outage over does not log its beginning again, and logs its end with its whole length."""
    caplog.set_level(logging.DEBUG, LOGGER.name)
    backoff = Backoff(LOGGER, down_since=monotonic() - 60)
    backoff.failed(ConnectionError())
    backoff.succeeded()
    [record] = caplog.records
    assert record.levelno == logging.INFO
    assert "after 60." in record.getMessage()
    assert backoff.down_since is None


def test_answers_without_an_outage_say_nothing(backoff: Backoff, caplog: pytest.LogCaptureFixture) -> None:
    """While all is well nothing is logged."""
    backoff.succeeded()
    assert caplog.records == []


def test_the_next_outage_begins_anew(backoff: Backoff, caplog: pytest.LogCaptureFixture) -> None:
    """After an answer, the next failure is logged again and its pauses start short again."""
    for _ in range(5):
        backoff.failed(ConnectionError("one"))
    backoff.succeeded()
    caplog.clear()
    assert backoff.failed(OSError("two")) == BACKOFF_S[0]
    [record] = caplog.records
    assert "OSError: two" in record.getMessage()
