import pickle
from copy import deepcopy
from datetime import timedelta
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_ext.delays.chain import MAX_STEPS, DelayChain
from kombu_delayq import InvalidDelayChain

PAYMENT = "4m,10m,10m,1h,2h,6h,15h"
delays_ms = st.integers(0, 10**9)
percents = st.one_of(st.integers(0, 100), st.floats(0, 100).map(lambda percent: round(percent, 3)))


@st.composite
def written(draw: st.DrawFn) -> tuple[str, list[int], list[float]]:
    """A text of a chain, and the delays in ms and jitters in percent that it stands for."""
    items, delays, jitters = [], [], []
    jitter_of_all = draw(st.none() | percents)
    for delay in draw(st.lists(delays_ms, min_size=1, max_size=8)):
        times, jitter = draw(st.none() | st.integers(1, 5)), draw(st.none() | percents)
        marks = [f"*{times}"] if times else []
        marks += [] if jitter is None else [f"~{jitter:.3f}%"]
        items.append(f"{delay}ms" + "".join(draw(st.sampled_from(list(permutations(marks))))))
        delays += [delay] * (times or 1)
        jitters += [jitter if jitter is not None else jitter_of_all or 0] * (times or 1)
    if jitter_of_all is not None:
        items.append(f"~{jitter_of_all:.3f}%")
    text = items[0]
    for item in items[1:]:
        text += draw(st.sampled_from([",", " ", ", ", " ,", "\t , \n", "  "])) + item
    return draw(st.sampled_from(["", " "])) + text, delays, jitters


@given(written())
def test_a_chain_is_what_is_written(case: tuple[str, list[int], list[float]]) -> None:
    """Separators, repeats and jitters mean what they say, and the text, a copy and a pickle give the same chain."""
    text, delays, jitters = case
    chain = DelayChain.parse(text)
    assert [step / timedelta(milliseconds=1) for step in chain] == delays
    assert list(chain.jitters) == pytest.approx(jitters)
    assert chain.total == timedelta(milliseconds=sum(delays))
    assert str(chain) == text
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(chain, protocol))
        assert again == chain
        assert str(again) == text
    assert DelayChain.parse(str(chain)) == deepcopy(chain) == chain


@given(written(), st.floats(0, 1))
def test_jitter_stays_in_its_bounds(case: tuple[str, list[int], list[float]], at: float) -> None:
    """A step with jitter waits between its delay minus and plus the percentage, one without exactly its delay."""
    text, delays, jitters = case
    chain = DelayChain.parse(text)
    for n, (delay, jitter) in enumerate(zip(delays, jitters, strict=True)):
        low, high = (delay / 1000 * (1 + sign * jitter / 100) for sign in (-1, 1))
        assert chain.delay_s(n, lambda: at) == pytest.approx(low + at * (high - low), abs=1e-6)
        assert chain.delay_s(n) >= 0
        if jitter == 0:
            assert chain.delay_s(n) == delay / 1000


def test_jitter_differs_each_time() -> None:
    """Without a source of its own, a step's jitter is drawn anew at each call, around the delay."""
    chain = DelayChain.parse("100s~10%")
    drawn = [chain.delay_s(0) for _ in range(1000)]
    assert len(set(drawn)) > 900
    assert all(90 <= delay <= 110 for delay in drawn)
    assert min(drawn) < 95 < 105 < max(drawn)


def test_equality_is_of_the_steps() -> None:
    """Chains of the same delays and jitters are equal with equal hashes, others are not."""
    same = [DelayChain.parse(text) for text in ("4m,10m,10m ~5%", "240s~5% 600000ms*2~5.0%", "4m 10m 0.1h4m ~5%")]
    assert len(set(same)) == 1
    different = ["4m,10m,10m", "4m,10m,10m ~6%", "10m,4m,10m ~5%", "4m,10m ~5%", "4m~5%,10m,10m~5%"]
    assert len({same[0], *map(DelayChain.parse, different)}) == len(different) + 1
    assert same[0] != str(same[0])


@pytest.mark.parametrize("n", [-1, 7, 10**9])
def test_a_step_that_is_not_there_is_an_index_error(n: int) -> None:
    """Asking for the delay of a step past the end, or before the beginning, raises IndexError."""
    with pytest.raises(IndexError, match="steps 0 to 6"):
        DelayChain.parse(PAYMENT).delay_s(n)


@pytest.mark.parametrize(
    ("text", "step", "item", "why"),
    [
        ("4m,,10m", 2, "", "it is empty"),
        (",4m", 1, "", "it is empty"),
        ("4m, ", 2, "", "it is empty"),
        ("4m,10,1h", 2, "10", "not a duration"),
        ("4m 10x~10% 1h", 2, "10x~10%", "'10x' is not a duration"),
        ("4m,10m;1h", 2, "10m;1h", "not a duration"),
        ("-4m", 1, "-4m", "not a duration"),
        ("4m,6000w", 2, "6000w", "100 years"),
        ("4m,10m*0", 2, "10m*0", "a whole number from 1"),
        ("4m,10m*", 2, "10m*", "a whole number from 1"),
        ("10m*1.5", 1, "10m*1.5", "a whole number from 1"),
        ("10m*-1", 1, "10m*-1", "a whole number from 1"),
        ("10m*2*3", 1, "10m*2*3", "once"),
        ("10m~1%~2%", 1, "10m~1%~2%", "once"),
        ("10m~10", 1, "10m~10", "a number from 0 to 100 and %"),
        ("10m~100.1%", 1, "10m~100.1%", "a number from 0 to 100 and %"),
        ("10m~-1%", 1, "10m~-1%", "a number from 0 to 100 and %"),
        ("10m ~nan%", 2, "~nan%", "a number from 0 to 100 and %"),
        ("~10%", 1, "~10%", "begins with its delay"),
        ("4m ~10% 10m", 2, "~10%", "begins with its delay"),
        ("4m,10m *3", 3, "*3", "begins with its delay"),
    ],
)
def test_an_error_points_at_the_step(text: str, step: int, item: str, why: str) -> None:
    """A text that is no chain raises an error with the text, the step counted from 1, the step's text and why."""
    with pytest.raises(InvalidDelayChain) as raised:
        DelayChain.parse(text)
    message = str(raised.value)
    assert f"step {step}, {item!r}, of the delay chain {text!r}" in message
    assert why in message


@pytest.mark.parametrize("text", ["", " \t\n"])
def test_an_empty_text_is_no_chain(text: str) -> None:
    """A text without a step is refused, with an example of what to write."""
    with pytest.raises(InvalidDelayChain, match="has no step: write one such as"):
        DelayChain.parse(text)


@pytest.mark.parametrize("value", [None, 5, 1.5, b"4m", ["4m", "10m"], timedelta(minutes=4)])
def test_what_is_no_text_is_no_chain(value: object) -> None:
    """Anything but a text or a chain is refused by the same error, which shows it."""
    with pytest.raises(InvalidDelayChain) as raised:
        DelayChain.parse(value)  # type: ignore[arg-type]
    assert repr(value) in str(raised.value)


@pytest.mark.parametrize(
    "text",
    ["1s," * MAX_STEPS + "~5%", f"1s*{MAX_STEPS}", f"1s*{MAX_STEPS - 1} 1s ~1%", "1s " * MAX_STEPS],
    ids=range(4),
)
def test_the_longest_chain_is_taken(text: str) -> None:
    """A chain of as many steps as the limit is one."""
    assert len(DelayChain.parse(text)) == MAX_STEPS


@pytest.mark.parametrize(
    "text",
    [
        *("1s,2s," * 5000 + "1s", f"1s*{MAX_STEPS + 1}", f"1s*{MAX_STEPS},1s", "1s " * MAX_STEPS + "1s ~5%"),
        *("1s*999999999", "1s*999999999999", "1s*" + "9" * 5000, "1s " * 5_000_000),
    ],
    ids=range(8),
)
def test_a_longer_chain_is_refused(text: str) -> None:
    """A chain of more steps is refused by an error that names the limit and can be read."""
    with pytest.raises(InvalidDelayChain, match=f"more than {MAX_STEPS} steps") as raised:
        DelayChain.parse(text)
    assert len(str(raised.value)) < 1000


@given(st.text(st.sampled_from("0123456789.wdhms,~*% "), max_size=30))
def test_any_text_is_a_chain_or_an_error(text: str) -> None:
    """No text raises anything but InvalidDelayChain."""
    try:
        chain = DelayChain.parse(text)
    except InvalidDelayChain:
        return
    assert 1 <= len(chain) <= MAX_STEPS
    assert str(chain) == text
