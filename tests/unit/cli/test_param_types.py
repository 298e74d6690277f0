import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import click
import pytest

from celery_ext.cli.options import GivenMoment, duration, moment
from celery_ext.cli.output import escaped, shortened, when
from kombu_delayq.message.due import iso_of

NOON_MS = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp() * 1000


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Puts this process into a time zone that has summer time."""
    with monkeypatch.context() as patched:
        patched.setitem(os.environ, "TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "iso_utc"),
    [
        ("2026-11-21T13:00", "2026-11-21T12:00:00+00:00"),
        ("2026-07-21 14:00:00.25", "2026-07-21T12:00:00.250000+00:00"),
        ("2026-11-21T13:00:00+05:30", "2026-11-21T07:30:00+00:00"),
        ("2026-11-21T13:00Z", "2026-11-21T13:00:00+00:00"),
        ("2026-11-21", "2026-11-20T23:00:00+00:00"),
    ],
)
@pytest.mark.usefixtures("in_berlin")
def test_a_time_without_a_zone_is_local(text: str, iso_utc: str) -> None:
    """ISO 8601 is read as it is written; what has no zone is meant where the command runs."""
    found = moment(text)
    assert (iso_of(found.ms), found.relative) == (iso_utc, False)
    assert found.at(5) == found.ms


@pytest.mark.parametrize(("text", "ms"), [("10m", 600_000), ("1h30m", 5_400_000), ("250ms", 250), ("0s", 0)])
def test_a_duration_counts_from_now(text: str, ms: float) -> None:
    """A duration is a time from now, by the clock that says what now is."""
    assert moment(text) == GivenMoment(ms, True)
    assert moment(text).at(1000) == ms + 1000


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "600", "-10m", "10", "10x", "2026-13-01", "15:04", "99999-01-01", "0001-01-01", "2026-W99"]
)
@pytest.mark.usefixtures("in_berlin")
def test_what_is_no_time_is_refused_with_both_forms(text: str) -> None:
    """The error shows what was given, an example of a time, and one of a duration."""
    with pytest.raises(click.BadParameter) as caught:
        moment(text)
    assert repr(text) in caught.value.message
    assert "ISO 8601" in caught.value.message
    assert "1h30m" in caught.value.message


@pytest.mark.parametrize("text", ["99999999w", "36525d1ms"])
def test_a_duration_that_is_too_long_is_refused_as_such(text: str) -> None:
    """The error says that the time is too far away, and not that it is none."""
    with pytest.raises(click.BadParameter) as caught:
        moment(text)
    assert caught.value.message == f"{text!r} is longer than 100 years, the longest duration"


@pytest.mark.parametrize(
    ("text", "seconds"), [("10", 10), ("1.5", 1.5), ("0", 0), ("10m", 600), ("1h30m", 5400), ("250ms", 0.25)]
)
def test_a_plain_number_is_a_duration_in_seconds(text: str, seconds: float) -> None:
    """A countdown is a number of seconds, as in Celery, or a duration with units."""
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "1e3", "ten", "10 m", "9" * 400, "200w200w", "101000w"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """The error is one of usage, and says what a duration is."""
    with pytest.raises(click.BadParameter, match="duration"):
        duration(text)


@pytest.mark.usefixtures("in_berlin")
def test_a_due_time_is_absolute_and_relative() -> None:
    """A due time is printed in the local zone, and as what is left until then."""
    assert when(NOON_MS + 11_520_000, NOON_MS) == "2026-11-21 16:12:00 CET (in 3h 12m)"
    assert when(NOON_MS - 4200, NOON_MS) == "2026-11-21 12:59:55 CET (4.2s ago)"


@pytest.mark.parametrize("ms", [1e18, -1e18, float("inf")])
def test_a_due_time_outside_the_calendar_is_printed_as_a_number(ms: float) -> None:
    """The score of a damaged entry may be any number, and must not end a listing."""
    assert when(ms, NOON_MS) == f"{ms:.0f} ms since 1970"
    assert iso_of(ms) is None


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("order-7", "order-7"),
        ("größe 漢字", "größe 漢字"),
        ("a\x1b[31m\r\nb\x9b", r"a\x1b[31m\r\nb\x9b"),
        ("\u202eleft", r"\u202eleft"),
        ("\udcff", r"\udcff"),
    ],
)
def test_control_characters_are_printed_escaped(text: str, printed: str) -> None:
    """What a terminal would act on is shown as Python writes it; all other text stays as it is."""
    assert escaped(text) == printed


def test_a_long_text_ends_in_an_ellipsis() -> None:
    """A shortened text has the length asked for."""
    assert (shortened("abcdef", 6), shortened("abcdefg", 6)) == ("abcdef", "abcde…")
