"""What a benchmark's values come to: medians, spreads, who leads, and which targets are met."""

import ast
import re
from math import inf
from pathlib import Path

import pytest

from tests.bench.bounds import bounds
from tests.bench.columns import Column, columns, shown, spread, with_path
from tests.bench.facts import machine
from tests.bench.groups import GROUPS
from tests.bench.measures import MEASURES
from tests.bench.results import Gap, Results, Spread
from tests.support.made_up_benchmark import FACTS, HASH, LIST, results

NAMES = [HASH, LIST, "Celery", "Hare"]
SOURCES = [Path(__file__).parents[2] / "bench" / name for name in ("jobs.py", "filling.py", "scripts.py")]


def column(found: Results, key: str, size: int = 100) -> Column:
    return next(each for each in columns(found, key, NAMES) if each.size == size)


def keys_in(source: str) -> set[str]:
    """Returns the names that samples are made with; what a name leaves open is any text."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Sample":
            names.add(re.sub(r"f?'(.*)'", r"\1", re.sub(r"\{.*?\}", "*", ast.unparse(node.args[0]))))
    return names


def test_every_measure_of_the_jobs_is_described() -> None:
    """Each name in a sample of the jobs is that of a measure, and each measure is in a table of the page."""
    names = {name for source in SOURCES for name in keys_in(source.read_text(encoding="utf-8"))}
    assert {"kept", "transfer", "*_begun", "script_offer"} <= names
    literal = {name for name in names if "*" not in name and name != "row"}
    assert literal <= set(MEASURES)
    for name in names - literal - {"row"}:
        assert any(re.fullmatch(name.replace("*", ".*"), key) for key in MEASURES), name
    in_tables = {key for group in GROUPS for table in group.tables for key in table}
    assert set(MEASURES) - in_tables == {"limit", "limit_bytes", "script_limit"}


def test_texts_of_measures_leave_only_known_numbers_open() -> None:
    """Titles and explanations can be filled in from the facts of a run."""
    for measure in MEASURES.values():
        assert "{" not in measure.title.format_map(FACTS.numbers) + measure.how.format_map(FACTS.numbers)
        assert not measure.follows or measure.follows in MEASURES


def test_a_cell_is_the_median_with_its_spread() -> None:
    """Three rounds are shown as their median, the least and the greatest; equal ones as one value."""
    found = results(*[("transfer", HASH, 100, value) for value in (300.0, 100.0, 200.0)])
    assert found.of("transfer", HASH, 100) == Spread(200, 100, 300, 3)
    assert spread(Spread(200, 100, 300, 3), MEASURES["transfer"], "25") == "200 (100\N{EN DASH}300)"
    assert spread(Spread(200, 200, 200, 3), MEASURES["transfer"], "25") == "200"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("transfer", 85_149.2, "85,100"),
        ("transfer", 8.4, "8"),
        ("cancel", 0.1249, "0.12"),
        ("idle_cpu", 0.001, "< 0.01"),
        ("idle_cpu", 0.0, "0.00"),
        ("poisson_min", -0.31, "\N{MINUS SIGN}0.3"),
        ("poisson_min", -0.01, "0.0"),
        ("poisson_begun", 1.0, "100"),
        ("poisson_begun", 0.99996, "99.9"),
        ("poisson_max", inf, "not within 25 s"),
    ],
)
def test_a_value_is_shown_with_as_many_digits_as_it_is_worth(key: str, value: float, text: str) -> None:
    """Great values have three digits, small ones the decimals of their measure, and nothing is rounded up to all."""
    assert shown(value, MEASURES[key], "25") == text


@pytest.mark.parametrize(
    ("ours", "other", "leads"),
    [
        ([110.0], [100.0], True),
        ([96.0], [100.0], True),
        ([80.0], [100.0], False),
        ([80.0], [75.0, 100.0, 110.0], True),
        ([70.0, 80.0, 120.0], [100.0], False),
    ],
)
def test_leading_is_to_be_best_or_as_good(ours: list[float], other: list[float], leads: bool) -> None:
    """Who is within 5 % of the best, or within the spread of the best's rounds, leads too; an own spread is no help."""
    found = results(
        *[("transfer", LIST, 100, value) for value in ours], *[("transfer", "Hare", 100, value) for value in other]
    )
    assert column(found, "transfer").leads is leads


def test_the_better_form_counts() -> None:
    """kombu-delayq leads with the better of its forms, whichever that is, and by the direction of the measure."""
    values = {HASH: 5.0, LIST: 2.0, "Celery": 3.0, "Hare": 9.0}
    found = results(*[(key, name, 100, value) for key in ("cancel", "transfer") for name, value in values.items()])
    less, more = column(found, "cancel"), column(found, "transfer")
    assert (less.ours, less.other, less.leads, less.best) == (LIST, "Celery", True, [LIST])
    assert (more.ours, more.other, more.leads, more.best) == (HASH, "Hare", False, ["Hare"])


def test_what_never_ended_is_neither_best_nor_leads() -> None:
    """An infinite value loses against any other, and is nobody's best."""
    found = results(("burst_max", HASH, 0, inf), ("burst_max", "Hare", 0, 900.0))
    late = column(found, "burst_max", 0)
    assert (late.best, late.leads) == (["Hare"], False)
    found = results(("burst_max", HASH, 0, inf), ("burst_max", "Hare", 0, inf))
    assert column(found, "burst_max", 0).best == []


def test_nobody_leads_alone() -> None:
    """Without a value of kombu-delayq, or of anybody else, there is nothing to lead in."""
    assert column(results(("cancel", HASH, 100, 1.0)), "cancel").leads is None
    assert column(results(("cancel", "Hare", 100, 1.0)), "cancel").leads is None


def test_a_gap_stands_for_what_depends_on_it() -> None:
    """Without a transfer there is no longest block either, and the cell has the reason."""
    found = results(
        ("longest", "Hare", 100, 1.0), ("transfer", "Hare", 100, 1.0), gaps=(Gap("transfer", HASH, 0, "nothing moves"),)
    )
    assert column(found, "longest").cells[HASH] == "nothing moves"
    assert column(found, "longest").cells["Celery"] == "not measured in this run"


def test_offer_to_queue_is_the_sum_of_both_parts() -> None:
    """The CPU time of each round of enqueueing and of its transfer is added; one without the other adds nothing."""
    found = with_path(
        results(
            *[("offer_cpu", HASH, 100, value) for value in (1.0, 2.0)],
            *[("transfer_cpu", HASH, 100, value) for value in (10.0, 20.0)],
            ("offer_cpu", "Hare", 100, 3.0),
        )
    )
    assert found.of("path_cpu", HASH, 100) == Spread(16.5, 11, 22, 2)
    assert found.of("path_cpu", "Hare", 100) == "not measured in this run"


def test_targets_are_held_against_the_worst_size() -> None:
    """Each target is met or not by each form, by the backlog that is worst for it and the ratio to stock Celery."""
    found = results(
        *[("enqueue_one_reads", name, 100, 1.001) for name in (HASH, LIST)],
        *[("enqueue_one_cpu", name, 100, cpu) for name, cpu in ((HASH, 90.0), (LIST, 130.0), ("Celery", 100.0))],
        *[("script_transfer", HASH, size, cpu) for size, cpu in ((100, 7.0), (200, 8.2))],
        *[("alone", name, 0, rate) for name, rate in ((HASH, 3100.0), (LIST, 2900.0), ("Celery", 1000.0))],
        *[("script_longest", HASH, 100, value) for value in (4.0, 4.5, 6.0)],
        *[("quiet_cpu", name, count, cpu) for name in (HASH, LIST) for count, cpu in ((10, 5.0), (100, 0.4))],
    )
    reads, cpu, transfer, longest, alone, idle = bounds(found)
    assert [reads.met(HASH), reads.met(LIST)] == [True, True]
    assert [cpu.values[HASH], cpu.values[LIST]] == pytest.approx([0.9, 1.3])
    assert [cpu.met(HASH), cpu.met(LIST)] == [True, False]
    assert [transfer.values[HASH], transfer.met(HASH), transfer.met(LIST)] == [8.2, False, None]
    assert [longest.values[HASH], longest.met(HASH)] == [6.0, False]
    assert [alone.met(HASH), alone.met(LIST)] == [True, False]
    assert [idle.values[HASH], idle.met(HASH)] == [0.4, True]


def test_the_machine_is_told() -> None:
    """The facts of a machine have no empty entry."""
    assert all(machine().values())
