"""The page that a benchmark writes: nothing is left out, and nothing is said that was not found."""

import json
from importlib.util import find_spec
from math import inf
from os import environ
from pathlib import Path

import pytest

from tests.bench import page, tables
from tests.bench.columns import with_path
from tests.bench.facts import Facts
from tests.bench.results import Gap, Results
from tests.support import ROOT
from tests.support.made_up_benchmark import FACTS, HASH, LIST, QUICK, results

DOCS = ROOT / "docs"
RATES = ((HASH, 90_000.0), (LIST, 40_000.0), ("Celery", 300.0), ("Hare", 5_000.0))
GAPS = (
    Gap("cancel", "Celery", 0, "cannot"),
    Gap("transfer", "Hare", 1_000, "its worker ended with 1: | no memory left at all", failed=True),
    Gap("poisson_more", "Hare", 0, "3 of 60 tasks ran twice"),
)


def written(found: Results, facts: Facts = FACTS) -> str:
    return "\n".join(page.lines(with_path(found), facts))


def a_run() -> Results:
    """Returns results with something in every section."""
    return results(
        *[("transfer", name, 100, rate) for name, rate in RATES],
        *[("transfer_cpu", name, 100, 1e6 / rate) for name, rate in RATES],
        ("script_transfer", HASH, 100, 11.11),
        *[("offer_cpu", name, 100, 10.0) for name, _ in RATES],
        *[("transfer", name, 1_000, rate) for name, rate in RATES[:3]],
        *[("cancel", name, 100, 1.0) for name, _ in RATES if name != "Celery"],
        *[("alone", name, 0, rate) for name, rate in RATES],
        *[("alone_cpu", name, 0, 1e6 / rate) for name, rate in RATES],
        *[("kept", name, 100, 1000.0 + at) for at, (name, _) in enumerate(RATES)],
        *[("worker", name, 100, 5.0) for name, _ in RATES],
        *[("enqueue_one", name, 100, 900.0) for name, _ in RATES],
        *[("idle_commands", name, count, 2.0 * count) for name, _ in RATES for count in (1, 10)],
        *[(f"poisson_{row}", name, 0, 4.0) for name, _ in RATES[:3] for row in ("min", "p50", "p99", "max")],
        *[(f"poisson_{row}", "Hare", 0, value) for row, value in (("p50", 2.0), ("p99", inf), ("max", inf))],
        *[("poisson_begun", name, 0, 0.713 if name == "Hare" else 1.0) for name, _ in RATES],
        ("limit", "LPUSH", 0, 2.5),
        ("limit_bytes", "LPUSH", 0, 1600.0),
        gaps=GAPS,
    )


def row(text: str, heading: str, name: str) -> str:
    """Returns a contender's row in the table below a heading in bold."""
    below = text[text.index(f"**{heading}") :].splitlines()
    return next(line for line in below if line.startswith((f"| {name} |", f"| **{name}** |")))


def test_the_published_page_is_what_its_figures_give() -> None:
    """The page in the documentation says what the code of the benchmark says today, of the figures beside it.

    Where this fails: ``.venv-bench/bin/python -m tests.bench --again docs/benchmarks/figures.json``.
    """
    found, facts = page.read(DOCS / page.BESIDE / page.FIGURES)
    text = "\n".join([*page.lines(with_path(found), facts), ""])
    assert text == (DOCS / page.PAGE).read_text(encoding="utf-8")


def test_the_best_of_a_column_is_bold() -> None:
    """In each column the best median is in bold, and no other."""
    text = written(a_run())
    assert row(text, "Transfer of an overdue", HASH) == f"| **{HASH}** | **90,000** | **90,000** |"
    assert row(text, "Transfer of an overdue", "Celery") == "| Celery | 300 | 300 |"


def test_no_gap_is_silent() -> None:
    """A short reason is in the cell, a long one below the table, and all are listed at the end."""
    text = written(a_run())
    assert row(text, "Cancel a random waiting message: median", "Celery") == "| Celery | cannot |"
    assert row(text, "Transfer of an overdue", "Hare").endswith("| (a) |")
    assert r"(a) its worker ended with 1: \| no memory left at all" in text
    missing = text[text.index("## What is missing") :]
    assert "| Celery | Cancel a random waiting message: median |  | cannot |" in missing
    assert r"1,000 | failed: its worker ended with 1: \|" in missing
    assert "| Hare | poisson_more |  | 3 of 60 tasks ran twice |" in missing


def test_what_nobody_explains_is_said_to_be_unmeasured() -> None:
    """A cell with neither value nor reason is a dash that is explained, and so is a table without any."""
    text = written(results(("kept", HASH, 100, 1000.0)))
    assert "\N{EN DASH}: not measured in this run" in text
    assert text.count("\nNot measured in this run.\n") > 10


def test_who_is_absent_is_named_with_the_reason() -> None:
    """A contender that could not run has no row in a table of figures, but is named twice with what it lacked."""
    text = written(a_run())
    assert "Not in this run: Absent: no npm on the PATH." in text
    assert "| Absent | not in this run: no npm on the PATH | `absent` |" in text
    assert text.count("| Absent |") == 1


def test_infinite_lateness_is_said_with_how_many_began() -> None:
    """What did not begin in time is neither a number nor missing."""
    assert row(written(a_run()), "100/s", "Hare").endswith("| **2.0** | not within 25 s | not within 25 s | 71.3 |")


def test_a_reason_is_given_only_where_others_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where kombu-delayq does not lead, the written reason stands, or that there is none; elsewhere neither."""
    written_down = {"poisson_p50": "A hare is fast.", "kept": "Not to be seen."}
    monkeypatch.setattr(tables, "REASONS", written_down)
    text = written(a_run())
    assert "*100/s: p50: kombu-delayq does not lead (4.0 against 2.0, Hare):* A hare is fast." in text
    assert "Not to be seen." not in text
    assert "no reason has been written for this" not in text
    del written_down["poisson_p50"]
    assert "no reason has been written for this" in written(a_run())


def test_the_summary_counts_the_rows_in_which_kombu_delayq_leads() -> None:
    """Each compared measure is a row with the best of both sides, at the greatest size."""
    text = written(a_run())
    assert "| Transfer of an overdue backlog, /s | 1,000 | hash: 90,000 | Celery: 300 | yes |" in text
    assert "| 100/s: p50, ms |  | hash: 4.0 | Hare: 2.0 | no |" in text
    assert "kombu-delayq leads in 14 of 15 rows." in text


def test_the_summary_also_tells_who_leads_among_those_with_the_same_worker() -> None:
    """Beside Celery alone kombu-delayq leads in the row in which only another is better."""
    values = ((HASH, 20.0), ("Celery", 10.0), ("Hare", 30.0))
    text = written(results(*[("transfer", name, 100, value) for name, value in values]))
    assert "kombu-delayq leads in 0 of 1 rows." in text
    assert "in the same worker, kombu-delayq leads in 1 of 1 rows" in text


def test_a_worker_that_shrank_has_not_grown() -> None:
    """Whose memory became less is not better than whose stayed as it was."""
    text = written(results(("worker", HASH, 100, 0.0), ("worker", "Hare", 100, -518.0)))
    assert row(text, "Memory of the worker", "Hare").endswith("| 0 |")
    assert "kombu-delayq leads in 1 of 1 rows" in text


def test_the_limit_is_beside_what_is_compared_with_it() -> None:
    """The bare command's time is told with the size of its messages, and how much more kombu-delayq takes."""
    text = written(a_run())
    assert "bare `LPUSH` of 1,600 bytes: 2.5 µs" in text
    assert f"{HASH} takes 8.4 times as much with 100 waiting" in text


def test_targets_are_met_or_not() -> None:
    """Each target has each form's value and whether that meets it."""
    text = written(a_run())
    cpu = "Redis's CPU time for a message of 1,000 bytes transferred, at every backlog, µs"
    assert f"| {cpu} | ≤ 8 | 11.11: **not met** |" in text
    assert "| Redis's CPU for 100 idle consumers without gossip, % of a core | < 1 | not measured in this run |" in text


def test_a_run_that_found_nothing_has_a_page() -> None:
    """Without any value the page still says what is missing."""
    text = written(Results(gaps=[Gap("", HASH, 100, "no time was left")]), QUICK)
    assert "no time was left" in text
    assert "This was a quick run" in text


def test_the_figures_are_valid_json() -> None:
    """The raw figures have every sample, gap and fact; what never ended is null."""
    found = json.loads(page.as_json(a_run(), FACTS))
    assert len(found["samples"]) == len(a_run().samples)
    assert {gap["why"] for gap in found["gaps"]} == {gap.why for gap in GAPS}
    assert [each["value"] for each in found["samples"] if each["measure"] == "poisson_max"][-1] is None
    assert found["facts"]["date"] == "2026-01-02T03:04:00+00:00"


def test_a_page_is_written_again_from_its_figures(tmp_path: Path) -> None:
    """What is read from the raw figures makes the same page, what never ended included."""
    figures = tmp_path / "figures.json"
    figures.write_text(page.as_json(a_run(), FACTS), encoding="utf-8")
    found, facts = page.read(figures)
    assert facts == FACTS
    assert written(found, facts) == written(a_run())


def test_charts_are_drawn_the_same_each_time(tmp_path: Path) -> None:
    """A page is written with its charts, which are SVG without dates or fonts, and equal for equal results."""
    if find_spec("matplotlib") is None:
        if environ.get("CI") == "true":
            pytest.fail("matplotlib is not installed")
        pytest.skip("matplotlib is not installed")
    for name in ("a", "b"):
        page.write(a_run(), FACTS, tmp_path / name)
    drawn_a, drawn_b = (tmp_path / name / "_build/benchmarks" for name in ("a", "b"))
    charts = sorted(path.name for path in drawn_a.glob("*.svg"))
    assert charts == [
        "alone.svg",
        "cancel.svg",
        "enqueue.svg",
        "idle.svg",
        "lateness.svg",
        "memory.svg",
        "path.svg",
        "transfer.svg",
    ]
    for name in charts:
        drawn = (drawn_a / name).read_bytes()
        assert drawn == (drawn_b / name).read_bytes()
        assert b"</svg>" in drawn
        assert b"font-family" not in drawn
