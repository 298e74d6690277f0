"""Bars and links of the page."""

from math import inf

import pytest
from starlette.requests import Request

from celery_ext.serve.page.chart import BARS, bars, bounds, chart, small_bars
from celery_ext.serve.page.rendering import View


def page_at(path: str) -> View:
    """Returns what knows the links of a page."""
    return View(Request({"type": "http", "path": path}))


def test_bounds_leave_nothing_out() -> None:
    """All that is overdue, equal parts, and all that is later."""
    found = bounds(1000.0, "hour", 4)
    assert found == [-inf, 1000.0, 901_000.0, 1_801_000.0, 2_701_000.0, 3_601_000.0, inf]


def test_bars_are_in_proportion() -> None:
    """The highest bar fills the drawing, nothing draws nothing, and a few are still seen."""
    found = bars([0, 1000, 500, 0, 1], 100)
    assert found.path == "M5 100v-100.0h4V100zM10 100v-50.0h4V100zM20 100v-1.5h4V100z"
    assert (found.first, found.width, found.height) == ("", 25, 100)
    assert small_bars([7, *[1] * BARS, 9]).path.count("M") == 24


def test_a_chart_adds_queues_up() -> None:
    """The chart has the counts of all queues together, and those of each queue with any."""
    counts = {"a": [2, *[1] * BARS, 3], "b": [0, *[1] * BARS, 0], "empty": [0] * (BARS + 2)}
    found = chart("hour", 5.0, counts, "?span={span}".format, in_parts=True)
    assert (found.counts[0], found.total, found.counts[-1]) == (2, 2 * BARS, 3)
    assert found.summary == "240 tasks due in the next hour"
    assert found.parts.keys() == {"a", "b"}
    assert found.spans[0] == ("hour", "Hour", "?span=hour")
    assert chart("month", 5.0, {}, "?span={span}".format, in_parts=False).summary == "0 tasks due in the next 30 days"


@pytest.mark.parametrize(("path", "base"), [("/", "./"), ("/queues/mail", "../"), ("/bulk/x/start", "../../")])
def test_links_are_relative(path: str, base: str) -> None:
    """Links lead from any page to the overview and to others without knowing the prefix of a proxy."""
    page = page_at(path)
    assert page.base == base
    assert page.queue("mail", span="day", sort="") == f"{base}queues/mail?span=day"


@pytest.mark.parametrize("name", [".", "..", "a/b", "a\\b", "\n", ""])
def test_names_that_no_path_can_have(name: str) -> None:
    """Names that servers or browsers would change in a path stand in the query."""
    assert page_at("/").queue(name).partition("?")[0] == "./queues"
    assert page_at("/").task("#%41?").endswith("tasks/%23%2541%3F")
