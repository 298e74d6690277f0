import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_ext.delays import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0.0),
        ("250ms", 0.25),
        ("0.5ms", 0.0005),
        ("007s", 7.0),
        ("4m", 240.0),
        ("1.5h", 5400.0),
        ("1.1h", 3960.0),
        ("2d", 172_800.0),
        ("1w", 604_800.0),
        ("1h30m", 5400.0),
        ("1w2d3h4m5s6ms", 788_645.006),
        ("5m5ms", 300.005),
        ("1h90m", 9000.0),
        ("36525d", durations.MAX_S),
    ],
)
def test_a_number_and_its_unit_are_a_duration(text: str, seconds: float) -> None:
    """Each unit has its length, decimals are exact, and parts from large to small add up."""
    assert durations.parse(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "10", "10x", "h", "1 h", " 1h", "1h\n", "1H", "1min", "+1s", "-1s", "1e3s", "nan", "infs", "1,5h"),
        *("1.h", ".5h", "1..5h", "1h1h", "30m1h", "1ms1s", "1h30", "0x1s", "1_0s", "\u0661s", "\u00b2s"),
    ],
)
def test_anything_else_is_an_error_that_names_it_and_the_units(text: str) -> None:
    """What is no duration raises a ValueError with the text and all units."""
    with pytest.raises(ValueError, match="is not a duration") as raised:
        durations.parse(text)
    assert str(raised.value).startswith(repr(text))
    assert "w, d, h, m, s, ms" in str(raised.value)


@pytest.mark.parametrize("text", ["36525d1ms", "5217w7d", "99999999999999999999w", "9" * 98 + "ms"], ids=range(4))
def test_the_longest_duration_is_named(text: str) -> None:
    """A duration of more than 100 years is refused by an error that says so."""
    with pytest.raises(ValueError, match="is longer than 100 years"):
        durations.parse(text)


@pytest.mark.parametrize("text", ["9" * 1_000_000 + "s", "1" * 1_000_000, "x" * 1_000_000], ids=range(3))
def test_a_very_long_text_is_refused_in_few_words(text: str) -> None:
    """A text of a million characters gives an error that can be read."""
    with pytest.raises(ValueError, match="is not a duration") as raised:
        durations.parse(text)
    assert len(str(raised.value)) < 500


@given(st.lists(st.integers(0, 500), min_size=6, max_size=6).filter(any))
def test_parts_add_up(numbers: list[int]) -> None:
    """A compound duration is as long as its parts together, to the float nearest to it."""
    parts = {unit: number for unit, number in zip(durations.UNITS, numbers, strict=True) if number}
    milliseconds = sum(int(number * durations.UNITS[unit] * 1000) for unit, number in parts.items())
    assert durations.parse("".join(f"{number}{unit}" for unit, number in parts.items())) == milliseconds / 1000


@given(st.text(st.sampled_from("0123456789.wdhms -+e"), max_size=12))
def test_a_duration_is_in_range_or_an_error(text: str) -> None:
    """Whatever is read is between 0 and the longest duration; all else is a ValueError."""
    try:
        seconds = durations.parse(text)
    except ValueError:
        return
    assert 0 <= seconds <= durations.MAX_S
