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


@pytest.mark.parametrize("columns", [20, 30, 60])
def test_a_coloured_table_fits_the_terminal_as_a_plain_one(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last column is cut, or its rows become blocks, as those of a plain table; the rest keeps its colour."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    state = "has lost its primary, and so on"
    head, plain = ["NODE", "STATE"], [["10.0.0.1:6379", state]]
    lines = fit_table(head, [["10.0.0.1:6379", bad(state)]], title=0)
    assert [click.unstyle(line) for line in lines] == fit_table(head, plain, title=0)
    assert lines[-1].count("\x1b[31m") == lines[-1].count("\x1b[0m") == 1


def test_a_text_that_is_coloured_in_part_is_cut_without_colours() -> None:
    """A cut never leaves a colour open."""
    assert shortened(f"so {RED_LATE}", 5) == "so l…"
    assert shortened(f"so {RED_LATE}", 7) == f"so {RED_LATE}"
    assert shortened(RED_LATE, 3) == "\x1b[31mla…\x1b[0m"
