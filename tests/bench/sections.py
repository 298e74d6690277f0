"""The sections of the page that a run writes, in Markdown."""

from collections.abc import Iterator, Sequence
from string import ascii_lowercase

from tests.bench.bounds import bounds
from tests.bench.columns import DASH, NOT_MEASURED, OURS, Column, columns, shown, spread
from tests.bench.facts import Facts
from tests.bench.measures import MEASURES, Group, Measure
from tests.bench.reasons import REASONS
from tests.bench.results import Results, Spread

#: A reason up to so many characters is put into the cell, a longer one below the table.
SHORT = 24
NO_REASON = "no reason has been written for this"

Lines = Iterator[str]


class Sections:
    """Writes them.

    Args:
        results: What was measured, and what could not be.
        facts: Of the run.
    """

    def __init__(self, results: Results, facts: Facts) -> None:
        self._results, self._facts = results, facts
        self._names = [each.name for each in facts.contenders if not each.why_not]
        self._grace_s = facts.numbers["grace_s"]

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
            f"kombu-delayq beside what people use instead: the same work, the same machine, the same run. "
            f"`{facts.command}` wrote this page on {facts.date:%Y-%m-%d} at {facts.date:%H:%M} UTC, in "
            f"{facts.took_s / 60:.0f} minutes, from [these figures]({figures})."
        )
        yield ""
        if facts.quick:
            yield "This was a quick run: small backlogs, a round each. Its figures are rough."
            yield ""
        yield f"Machine: {machine}."
        for note in facts.notes:
            yield from ("", note)
        absent = [each for each in facts.contenders if each.why_not]
        if absent:
            yield ""
            yield f"Not in this run: {'; '.join(f'{each.name}: {each.why_not}' for each in absent)}."

    def glance(self) -> Lines:
        """Yields a row for each measure that is compared, at its greatest size."""
        rows = [(key, self._columns(key)) for key, each in MEASURES.items() if each.better]
        compared = [found for _, found in rows if any(column.leads is not None for column in found)]
        ahead = sum(all(column.leads is not False for column in found) for found in compared)
        yield from ("", "## At a glance", "")
        yield (
            f"kombu-delayq leads in {ahead} of {len(compared)} rows. To lead is to have, at every size and with the "
            "better of its two forms of backup, the best median, or one within 5 % of it, or within the spread of the "
            "best. The table shows the greatest size that kombu-delayq was measured at; the sections below show all."
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
            value = shown(column.spreads[name].median, measure, self._grace_s)
            return f"{name.removeprefix(f'{OURS}, ')}: {value}"

        where = f"{column.size:,}" if column.size else ""
        title = f"{self._open(measure.title)}{f', {measure.unit}' if measure.unit else ''}"
        sizes = ", ".join(f"{each.size:,}" for each in behind if each.size)
        leads = f"no{f', at {sizes}' if sizes else ''}" if behind else "yes" if column.leads else DASH
        return f"| {title} | {where} | {best(column.ours)} | {best(column.other)} | {leads} |"

    def targets(self) -> Lines:
        """Yields the bounds, and whether they are met."""
        found = bounds(self._results)
        forms = list(found[0].values)
        yield from ("", "## Targets", "", "What this project has set itself, by the medians where no more is said:", "")
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
        numbers = self._facts.numbers
        yield from ("", "## How it was measured", "")
        yield (
            "Every contender is used through its public API, as its documentation does, with its defaults "
            "([below](#contenders)). All do the same work. A task's arguments are its due time and a fixed random "
            "text, together 1,000 bytes as JSON; how many bytes of its own a contender adds is part of what is "
            "compared. Each measure has a new server with nothing else in it: Redis without persistence, PostgreSQL "
            "or RabbitMQ. Producer, worker and server share the machine's cores."
        )
        yield ""
        yield (
            "The contenders take turns, and what is short is repeated: A B C, A B C. A cell is the median of the "
            "rounds, with the least and the greatest behind it where they differ. **Bold** is the best median of a "
            "column. Lateness by Poisson is measured of several contenders at the same time."
        )
        yield ""
        yield (
            "A task writes down how late it begins, as the first thing that it does. What has not begun "
            f"{numbers['grace_s']} s after the last due time counts as infinitely late: “{self._never()}”."
        )

    def group(self, group: Group, chart: str | None) -> Lines:
        """Yields a group's chart, tables, and why kombu-delayq does not lead in them.

        Args:
            group: Of measures.
            chart: Path of its chart, if there is one.
        """
        yield from ("", f"## {group.title}")
        if chart:
            yield from ("", f"![{group.title}: what the tables below say]({chart})")
        for table in group.tables:
            found = [column for key in table for column in self._columns(key)]
            measures = [MEASURES[key] for key in table]
            yield from ("", f"**{self._title(measures)}**. {self._how(measures)}", "")
            if any(column.spreads for column in found):
                yield from self._table(found)
            else:
                yield f"{NOT_MEASURED.capitalize()}."
            for key in table:
                yield from self._reason(key)
        if group.key == "path":
            yield from self._limit()

    def contenders(self) -> Lines:
        """Yields who was compared, with versions and configuration."""
        yield from ("", "## Contenders", "", "| | versions | configuration |", "|---|---|---|")
        for each in self._facts.contenders:
            versions = ", ".join(f"{name} {version}" for name, version in each.versions.items())
            if each.why_not:
                versions = f"not in this run: {_cell_text(each.why_not)}"
            yield f"| {each.name} | {versions} | {_cell_text(each.settings)} |"

    def gaps(self) -> Lines:
        """Yields every gap of the run."""
        yield from ("", "## What is missing", "")
        if not self._results.gaps:
            yield "Nothing: every contender in this run has every figure."
            return
        yield from ("| contender | what | at | why |", "|---|---|--:|---|")
        seen = dict.fromkeys((each.contender, each.measure, each.size, each.why) for each in self._results.gaps)
        failed = {(each.contender, each.measure, each.size, each.why) for each in self._results.gaps if each.failed}
        for gap in seen:
            contender, key, size, why = gap
            what = self._open(MEASURES[key].title) if key in MEASURES else key or "all"
            mark = "failed: " if gap in failed else ""
            yield f"| {contender} | {what} | {f'{size:,}' if size else ''} | {mark}{_cell_text(why)} |"

    def _columns(self, key: str) -> list[Column]:
        return columns(self._results, key, self._names)

    def _table(self, found: Sequence[Column]) -> Lines:
        notes: dict[str, str] = {}
        yield f"| | {' | '.join(self._heading(each, found) for each in found)} |"
        yield f"|---|{'--:|' * len(found)}"
        dashes = False
        for name in self._names:
            cells = [self._cell(column, name, notes) for column in found]
            dashes = dashes or DASH in cells
            yield f"| {_ours(name)} | {' | '.join(cells)} |"
        below = [f"{DASH}: {NOT_MEASURED}"] if dashes else []
        below += [f"({letter}) {why}" for why, letter in notes.items()]
        if below:
            yield from ("", ". ".join(below) + ".")

    def _cell(self, column: Column, name: str, notes: dict[str, str]) -> str:
        cell = column.cells[name]
        if isinstance(cell, Spread):
            text = spread(cell, column.measure, self._grace_s)
            return f"**{text}**" if name in column.best else text
        if cell == NOT_MEASURED:
            return DASH
        cell = _cell_text(cell)
        if len(cell) <= SHORT:
            return cell
        return f"({notes.setdefault(cell, ascii_lowercase[len(notes) % 26] * (1 + len(notes) // 26))})"

    def _heading(self, column: Column, beside: Sequence[Column]) -> str:
        """Returns a column's heading: its size where only that differs, else what is measured."""
        if all(each.measure == column.measure for each in beside):
            return f"{column.size:,}" if column.measure.by else column.measure.unit
        return self._open(column.measure.title).rpartition(": ")[2] + f", {column.measure.unit}"

    def _title(self, measures: Sequence[Measure]) -> str:
        first = measures[0]
        if len(measures) > 1:
            return self._open(first.title).partition(": ")[0]
        unit = f", {first.unit}" if first.unit else ""
        return f"{self._open(first.title)}{unit}{f', by {first.by}' if first.by else ''}"

    def _how(self, measures: Sequence[Measure]) -> str:
        return " ".join(dict.fromkeys(self._open(each.how) for each in measures))

    def _reason(self, key: str) -> Lines:
        behind = [column for column in self._columns(key) if column.leads is False]
        if behind:
            measure, column = MEASURES[key], behind[-1]
            assert column.ours is not None
            assert column.other is not None
            mine, best = (
                shown(column.spreads[each].median, measure, self._grace_s) for each in (column.ours, column.other)
            )
            sizes = ", ".join(f"{each.size:,}" for each in behind if each.size)
            yield ""
            yield (
                f"*{self._open(measure.title)}: kombu-delayq does not lead{f' at {sizes}' if sizes else ''} ({mine} "
                f"against {best}, {column.other}):* {REASONS.get(key, NO_REASON)}"
            )

    def _limit(self) -> Lines:
        found, size = (self._results.of(key, "LPUSH") for key in ("limit", "limit_bytes"))
        yield ""
        if not isinstance(found, Spread):
            yield f"**The limit**, bare `LPUSH`: {found}."
            return
        measure = MEASURES["limit"]
        length = f" of {shown(size.median, MEASURES['limit_bytes'], '')} bytes" if isinstance(size, Spread) else ""
        yield (
            f"**The limit**, bare `LPUSH`{length}: {spread(found, measure, self._grace_s)} {measure.unit}. "
            f"{self._open(measure.how)}"
        )
        ours = [column for column in self._columns("path_cpu") if column.ours]
        if ours and ours[-1].ours:
            mine = ours[-1].spreads[ours[-1].ours].median
            yield (
                f"From offer to queue, {ours[-1].ours} takes {mine / found.median:.1f} times as much with "
                f"{ours[-1].size:,} waiting."
            )

    def _open(self, text: str) -> str:
        """Fills in the numbers that a text leaves open."""
        return text.format_map(self._facts.numbers)

    def _never(self) -> str:
        return shown(float("inf"), MEASURES["poisson_max"], self._grace_s)


def _cell_text(text: str) -> str:
    """Returns a text as a cell can hold it."""
    return " ".join(text.split()).replace("|", "\\|")


def _ours(name: str) -> str:
    return f"**{name}**" if name.startswith(OURS) else name
