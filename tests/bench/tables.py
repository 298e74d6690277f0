"""The tables of the page, each with its notes and reasons."""

from collections.abc import Iterator, Sequence
from string import ascii_lowercase

from tests.bench.columns import DASH, NOT_MEASURED, OURS, Column, columns, shown, spread
from tests.bench.facts import Facts
from tests.bench.groups import Group
from tests.bench.measures import FORMS, MEASURES, Measure
from tests.bench.reasons import REASONS
from tests.bench.results import Results, Spread

#: Most characters of a reason that stands in its cell. A longer one stands below the table.
SHORT = 24
#: Groups that are compared with a bare command: the measure of the command, and the measures whose sum it bounds.
LIMITS = {"path": ("limit", ("path_cpu",)), "script": ("script_limit", ("script_offer", "script_transfer"))}
NO_REASON = "no reason has been written for this"

Lines = Iterator[str]


class Tables:
    """Writes the tables.

    Args:
        results: The samples, and the gaps.
        facts: Facts of the run.
    """

    def __init__(self, results: Results, facts: Facts) -> None:
        self._results, self._facts = results, facts
        self._names = [entrant.name for entrant in facts.contenders if not entrant.why_not]
        self._grace_s = facts.numbers["grace_s"]

    def group(self, group: Group) -> Lines:
        """Yields a group's tables, and why kombu-delayq does not lead in them.

        Args:
            group: The group of measures.
        """
        yield from ("", f"## {group.title}")
        for table in group.tables:
            found = [column for key in table for column in self.columns(key)]
            measures = [MEASURES[key] for key in table]
            yield from ("", f"**{self._title(measures)}**. {self._how(measures)}", "")
            if any(column.spreads for column in found):
                yield from self._table(found)
            else:
                yield f"{NOT_MEASURED.capitalize()}."
            for key in table:
                yield from self._reason(key)
        if group.key in LIMITS:
            yield from self._limit(*LIMITS[group.key])

    def columns(self, key: str) -> list[Column]:
        """Returns the columns of a measure."""
        return columns(self._results, key, self._names)

    def shown(self, value: float, measure: Measure) -> str:
        """Returns a value as in a cell, without its unit."""
        return shown(value, measure, self._grace_s)

    def opened(self, text: str) -> str:
        """Returns a text of ``tests.bench.measures`` with the numbers that it leaves open."""
        return text.format_map(self._facts.numbers)

    def _table(self, found: Sequence[Column]) -> Lines:
        notes: dict[str, str] = {}
        yield f"| | {' | '.join(self._heading(column, found) for column in found)} |"
        yield f"|---|{'--:|' * len(found)}"
        dashes = False
        for name in found[0].cells:
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
        cell = in_cell(cell)
        if len(cell) <= SHORT:
            return cell
        return f"({notes.setdefault(cell, ascii_lowercase[len(notes) % 26] * (1 + len(notes) // 26))})"

    def _heading(self, column: Column, beside: Sequence[Column]) -> str:
        """Returns a column's heading: its size where only that differs, else what is measured."""
        if all(other.measure == column.measure for other in beside):
            return f"{column.size:,}" if column.measure.by else column.measure.unit
        return self.opened(column.measure.title).rpartition(": ")[2] + f", {column.measure.unit}"

    def _title(self, measures: Sequence[Measure]) -> str:
        first = measures[0]
        if len(measures) > 1:
            return self.opened(first.title).partition(": ")[0]
        unit = f", {first.unit}" if first.unit else ""
        return f"{self.opened(first.title)}{unit}{f', by {first.by}' if first.by else ''}"

    def _how(self, measures: Sequence[Measure]) -> str:
        return " ".join(dict.fromkeys(self.opened(measure.how) for measure in measures))

    def _reason(self, key: str) -> Lines:
        behind = [column for column in self.columns(key) if column.leads is False]
        if behind:
            measure, column = MEASURES[key], behind[-1]
            assert column.ours is not None
            assert column.other is not None
            mine, best = (self.shown(column.spreads[name].median, measure) for name in (column.ours, column.other))
            sizes = ", ".join(f"{behind_column.size:,}" for behind_column in behind if behind_column.size)
            yield ""
            yield (
                f"*{self.opened(measure.title)}: kombu-delayq does not lead{f' at {sizes}' if sizes else ''} ({mine} "
                f"against {best}, {column.other}):* {REASONS.get(key, NO_REASON)}"
            )

    def _limit(self, limit: str, sums: Sequence[str]) -> Lines:
        found, size = (self._results.of(key, "LPUSH") for key in (limit, "limit_bytes"))
        yield ""
        if not isinstance(found, Spread):
            why = next((gap.why for gap in self._results.gaps if limit.startswith(gap.measure) and gap.measure), found)
            yield f"**The limit**, bare `LPUSH`: {why}."
            return
        measure = MEASURES[limit]
        length = f" of {self.shown(size.median, MEASURES['limit_bytes'])} bytes" if isinstance(size, Spread) else ""
        yield (
            f"**The limit**, bare `LPUSH`{length if limit == 'limit' else ''}: "
            f"{spread(found, measure, self._grace_s)} {measure.unit}. {self.opened(measure.how)}"
        )
        for name in FORMS:
            parts = [self.columns(key)[-1:] for key in sums]
            cells = [column.cells.get(name) for part in parts for column in part]
            if len(cells) == len(sums) and all(isinstance(cell, Spread) for cell in cells):
                times = sum(cell.median for cell in cells if isinstance(cell, Spread)) / found.median
                yield f"From offer to queue, {name} takes {times:.1f} times as much with {parts[0][0].size:,} waiting."


def in_cell(text: str) -> str:
    """Returns a text as a cell can hold it."""
    return " ".join(text.split()).replace("|", "\\|")


def _ours(name: str) -> str:
    return f"**{name}**" if name.startswith(OURS) else name
