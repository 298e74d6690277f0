import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_ext.delays.levels import DEFAULT, DelayLevels
from kombu_delayq import InvalidDelayLevel

ROCKETMQ_S = [1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200]


def test_default_levels_are_those_of_rocketmq() -> None:
    """Levels 1 to 18 are RocketMQ's delays, 0 is none, and above 18 is 18."""
    levels = DelayLevels.parse()
    assert len(levels) == 18
    assert [levels.delay_s(level) for level in range(19)] == [0, *ROCKETMQ_S]
    assert [levels.delay_s(level) for level in (19, 10**9, 10**5000)] == [7200] * 3


@given(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=30),
    st.sampled_from([" ", ",", ", ", "\n"]),
    st.integers(0, 40),
)
def test_a_level_is_its_entry(delays_ms: list[int], separator: str, level: int) -> None:
    """A level's delay is the entry of that number, counted from 1, or the last one; the text stays as it was."""
    text = separator.join(f"{delay}ms" for delay in delays_ms)
    levels = DelayLevels.parse(text)
    assert str(levels) == text
    assert len(levels) == len(delays_ms)
    assert levels.delay_s(level) == [0, *delays_ms][min(level, len(delays_ms))] / 1000


@pytest.mark.parametrize("level", [-1, -18, True, False, 1.0, float("nan"), "3", b"3", None, [3]])
def test_what_is_no_level_is_an_error(level: object) -> None:
    """Anything but a whole number from 0 is refused by an error that shows it and the range."""
    with pytest.raises(InvalidDelayLevel) as raised:
        DelayLevels.parse(DEFAULT).delay_s(level)  # type: ignore[arg-type]
    assert str(raised.value).endswith(f"from 0, no delay, to 18, the highest, not {level!r}")


def test_a_number_too_long_to_print_is_an_error_too() -> None:
    """A level that Python refuses to print is refused as any other."""
    with pytest.raises(InvalidDelayLevel, match="not <int>"):
        DelayLevels.parse().delay_s(-(10**5000))


@pytest.mark.parametrize(
    ("text", "level", "entry"),
    [
        ("1s 5x 10s", 2, "5x"),
        ("1s,5s,", 3, ""),
        ("1s,,5s", 2, ""),
        ("30", 1, "30"),
        ("1s -5s", 2, "-5s"),
        ("1s*3", 1, "1s*3"),
    ],
)
def test_an_error_points_at_the_entry(text: str, level: int, entry: str) -> None:
    """A text that is no table raises an error with the text, the level, its entry and the units."""
    with pytest.raises(InvalidDelayLevel) as raised:
        DelayLevels.parse(text)
    assert f"level {level}, {entry!r}, of the delay levels {text!r}" in str(raised.value)
    assert "w, d, h, m, s, ms" in str(raised.value)


@pytest.mark.parametrize("text", ["", "  ", None, 3, ["1s", "5s"]])
def test_what_has_no_entries_is_no_table(text: object) -> None:
    """An empty text and what is no text are refused by an error that shows them and an example."""
    with pytest.raises(InvalidDelayLevel, match="1s 5s 10s 30s 1m") as raised:
        DelayLevels.parse(text)  # type: ignore[arg-type]
    assert repr(text) in str(raised.value)
