import click
import pytest

from celery_ext.cli.output import bad, fit_table, good, shortened, table, warning
from celery_ext.cli.output import choice as colour_choice

RED_LATE = "\x1b[31mlate\x1b[0m"


@pytest.fixture(autouse=True)
def no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says nothing of colours."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(
    ("environment", "refused", "choice"),
    [
        ({}, False, None),
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": "0"}, False, False),  # whatever the value
        ({"NO_COLOR": ""}, False, None),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": ""}, False, None),
        ({"FORCE_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, False, True),
    ],
)
def test_who_wants_no_colours_gets_none(
    environment: dict[str, str], refused: bool, choice: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option counts most, then NO_COLOR, then FORCE_COLOR, then whether the terminal can."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert colour_choice(refused=refused) is choice


def test_colours_have_no_width() -> None:
    """A table with colours has the columns of the table without them, set to the left or the right."""
    rows = [["a", RED_LATE, "1"], [good("b"), "x", warning("100")]]
    plain = [[click.unstyle(cell) for cell in row] for row in rows]
    for right in ((), {1, 2}):
        lines = table(["N", "STATE", "HOW MANY"], rows, right)
        assert "".join(lines) != click.unstyle("".join(lines))
        assert [click.unstyle(line) for line in lines] == table(["N", "STATE", "HOW MANY"], plain, right)


@pytest.mark.parametrize(("columns", "left"), [(20, 12), (30, 15), (60, 31)])
def test_a_narrow_terminal_cuts_the_last_cells_of_a_table(
    columns: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They keep 12 characters and their colours; other cells are whole, and elsewhere than at a terminal all are."""
    state = "has lost its primary, and so on"
    head, rows = ["NODE", "STATE"], [["10.0.0.1:6379", bad(state)]]
    monkeypatch.setenv("COLUMNS", str(columns))
    assert fit_table(head, rows) == table(head, rows)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    [_, line] = fit_table(head, rows)
    shown = state if left == len(state) else f"{state[: left - 1]}…"
    assert line == f"10.0.0.1:6379  {bad(shown)}"


def test_a_text_that_is_coloured_in_part_is_cut_without_colours() -> None:
    """A cut never leaves a colour open."""
    assert shortened(f"so {RED_LATE}", 5) == "so l…"
    assert shortened(f"so {RED_LATE}", 7) == f"so {RED_LATE}"
    assert shortened(RED_LATE, 3) == "\x1b[31mla…\x1b[0m"
