"""The sections of the page around those with its tables, in Markdown."""

from collections.abc import Iterator, Sequence
from math import inf

from tests.bench.bounds import bounds
from tests.bench.columns import DASH, NOT_MEASURED, OURS, Column
from tests.bench.facts import Facts
from tests.bench.measures import MEASURES, STOCK, Measure
from tests.bench.results import Results
from tests.bench.tables import Tables, in_cell

Lines = Iterator[str]


class Sections:
    """Writes the sections.

    Args:
        results: The samples, and the gaps.
        facts: Facts of the run.
    """

    def __init__(self, results: Results, facts: Facts) -> None:
        self._results, self._facts = results, facts
        self._tables = Tables(results, facts)

    def head(self, figures: str) -> Lines:
        """Yields the title, and where the figures come from.

        Args:
            figures: Path of the raw figures.
        """
        facts = self._facts
        machine = ", ".join(f"{name} {value}" for name, value in facts.machine.items())
        yield "# Benchmarks"
        yield ""
        yield (
            "kombu-delayq beside the alternatives: the same work, the same machine, the same run. "
            f"`{facts.command}` wrote this page on {facts.date:%Y-%m-%d} at {facts.date:%H:%M} UTC, in "
            f"{facts.took_s / 60:.0f} minutes, from [these figures]({figures})."
        )
        yield ""
        if facts.quick:
            yield "This was a quick run: small backlogs, a round each. Its figures are rough."
        else:
            yield "[How to measure](reference/benchmarks.md) tells how to repeat it, also for some contenders only."
        yield ""
        yield f"Machine: {machine}."
        for note in facts.notes:
            yield from ("", note)
        absent = [entrant for entrant in facts.contenders if entrant.why_not]
        if absent:
            yield ""
            yield f"Not in this run: {'; '.join(f'{entrant.name}: {entrant.why_not}' for entrant in absent)}."

    def glance(self) -> Lines:
        """Yields a row for each measure that is compared, at its greatest size."""
        rows = [(key, self._tables.columns(key)) for key, measure in MEASURES.items() if measure.better]
        ahead = _ahead([found for _, found in rows])
        same = _ahead([[column.among(STOCK) for column in found] for _, found in rows])
        yield from ("", "## At a glance", "")
        yield (
            f"kombu-delayq leads in {ahead} rows. It leads in a row if at every size the best of its "
            "[entries](#contenders) has the best median, or one within 5 % of the best or within the spread of the "
            "best. The table shows the greatest size at which kombu-delayq was measured; the sections below show all."
        )
        yield ""
        yield (
            "The others have messages, workers and promises of their own. Compared with Celery's own transports only, "
            f"which run the same tasks in the same worker, kombu-delayq leads in {same} rows. It also "
            "[cancels](#cancel), which they cannot."
        )
        yield from ("", "| | at | kombu-delayq | best of the others | leads |", "|---|--:|--:|--:|---|")
        for key, found in rows:
            known = [column for column in found if column.ours] or [column for column in found if column.spreads]
            if known:
                yield self._glance(MEASURES[key], known[-1], [column for column in found if column.leads is False])

    def _glance(self, measure: Measure, column: Column, behind: Sequence[Column]) -> str:
        def best(name: str | None) -> str:
            if name is None:
                return NOT_MEASURED
            value = self._tables.shown(column.spreads[name].median, measure)
            return f"{name.removeprefix(f'{OURS}, ')}: {value}"

        where = f"{column.size:,}" if column.size else ""
        title = f"{self._tables.opened(measure.title)}{f', {measure.unit}' if measure.unit else ''}"
        sizes = ", ".join(f"{column.size:,}" for column in behind if column.size)
        leads = f"no{f', at {sizes}' if sizes else ''}" if behind else "yes" if column.leads else DASH
        return f"| {title} | {where} | {best(column.ours)} | {best(column.other)} | {leads} |"

    def targets(self) -> Lines:
        """Yields the bounds, and whether they are met."""
        found = bounds(self._results)
        forms = list(found[0].values)
        yield from (
            "",
            "## Targets",
            "",
            "Bounds that this project has set itself, by the medians unless a row says otherwise:",
            "",
        )
        if not forms:
            yield "kombu-delayq was not measured in this run."
            return
        yield f"| | bound | {' | '.join(forms)} |"
        yield f"|---|---|{'---|' * len(forms)}"
        for bound in found:
            cells = []
            for name in forms:
                value, met = bound.values[name], bound.met(name)
                cells.append(NOT_MEASURED if value is None else f"{value:.2f}: {'met' if met else '**not met**'}")
            yield f"| {bound.title} | {bound.bound} | {' | '.join(cells)} |"

    def method(self) -> Lines:
        """Yields how it was measured."""
        never = self._tables.shown(inf, MEASURES["poisson_max"])
        yield from ("", "## How it was measured", "")
        yield (
            "The programs use each contender's public API, as its documentation does, with its defaults "
            "([below](#contenders)). All do the same work. A task's arguments are its due time and a fixed random "
            "text, together 1,000 bytes as JSON. The bytes that a contender adds are part of the comparison. Each "
            "measure has a new server with nothing else in it: Redis without persistence, PostgreSQL "
            "or RabbitMQ. Producer, worker and server share the machine's cores."
        )
        yield ""
        yield (
            "The contenders take turns, and short measures are repeated: A B C, A B C. A cell is the median of the "
            "rounds, followed by the least and the greatest where they differ. **Bold** is the best median of a "
            "column. A worker's memory, idle consumers and the lateness at random times are measured for several "
            "contenders at the same time; each still has a server of its own."
        )
        yield ""
        yield (
            "First of all a task writes down how late it begins. A task that has not begun "
            f"{self._facts.numbers['grace_s']} s after the last due time counts as infinitely late: “{never}”."
        )

    def contenders(self) -> Lines:
        """Yields who was compared, with versions and configuration."""
        yield from ("", "## Contenders", "", "| | versions | configuration |", "|---|---|---|")
        for entrant in self._facts.contenders:
            versions = ", ".join(f"{name} {version}" for name, version in entrant.versions.items())
            if entrant.why_not:
                versions = f"not in this run: {in_cell(entrant.why_not)}"
            yield f"| {entrant.name} | {versions} | {in_cell(entrant.settings)} |"

    def gaps(self) -> Lines:
        """Yields every gap of the run."""
        yield from ("", "## What is missing", "")
        if not self._results.gaps:
            yield "Nothing: every contender in this run has every figure."
            return
        yield from ("| contender | what | at | why |", "|---|---|--:|---|")
        seen = dict.fromkeys((gap.contender, gap.measure, gap.size, gap.why) for gap in self._results.gaps)
        failed = {(gap.contender, gap.measure, gap.size, gap.why) for gap in self._results.gaps if gap.failed}
        for gap in seen:
            contender, key, size, why = gap
            what = self._tables.opened(MEASURES[key].title) if key in MEASURES else key or "all"
            mark = "failed: " if gap in failed and not why.startswith("failed") else ""
            yield f"| {contender} | {what} | {f'{size:,}' if size else ''} | {mark}{in_cell(why)} |"


def _ahead(rows: Sequence[Sequence[Column]]) -> str:
    """Returns in how many rows kombu-delayq leads, of those in which it is compared."""
    compared = [found for found in rows if any(column.leads is not None for column in found)]
    ahead = sum(all(column.leads is not False for column in found) for found in compared)
    return f"{ahead} of {len(compared)}"
