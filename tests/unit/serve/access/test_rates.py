import pytest

from celery_ext.serve.access.tokens import RateLimiter, parse_rate


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0


@pytest.mark.parametrize(
    ("text", "rate"), [("100/s", (100, 1)), ("5/m", (5, 60)), ("1/h", (1, 3600)), ("9/d", (9, 86_400))]
)
def test_a_rate_is_a_count_and_a_period(text: str, rate: tuple[int, int]) -> None:
    """A rate is read as it is written."""
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "5", "0/s", "-1/s", "1.5/s", "5/w", "5 / s", "\N{ARABIC-INDIC DIGIT ONE}/s", f"{10**9}/s"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    """The error shows what was given, and examples."""
    with pytest.raises(ValueError, match="5/m"):
        parse_rate(text)


def test_requests_come_all_at_once_and_then_at_the_rate() -> None:
    """A period's requests pass at once; after that, one passes each time that the answer named, and no sooner."""
    clock, rate = Clock(), "5/m"
    limiter = RateLimiter(lambda: clock.now)
    assert [limiter.wait_s("a", rate) for _ in range(5)] == [0] * 5
    assert limiter.wait_s("a", rate) == pytest.approx(12)
    clock.now += 11.9
    assert limiter.wait_s("a", rate) == pytest.approx(0.1)
    clock.now += 0.1
    assert limiter.wait_s("a", rate) == 0
    assert limiter.wait_s("a", rate) == pytest.approx(12)


def test_each_name_has_its_own_count() -> None:
    """One who sends too much does not slow down others, and is forgotten after a quiet period."""
    clock, rate = Clock(), "1/s"
    limiter = RateLimiter(lambda: clock.now)
    assert [limiter.wait_s(name, rate) for name in "aab"] == [0, pytest.approx(1), 0]
    clock.now += 100
    assert [limiter.wait_s("a", rate) for _ in "12"] == [0, pytest.approx(1)]
