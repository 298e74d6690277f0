"""The figures of a run, the rows that they stand in, and the tables of the page."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
#: The raw figures, and the page whose tables are made of them.
FIGURES, PAGE = ROOT / "docs" / "benchmarks" / "figures.json", ROOT / "docs" / "benchmarks.md"
#: Rows whose values are within this share of each other count as equal.
ALIKE = 1.05


@dataclass(frozen=True)
class Figure:
    """One measured value, or why there is none.

    Attributes:
        measure: A key of a row; the begin of several keys, or nothing for all, where there is no value.
        contender: Its name.
        size: How many messages waited, or consumers were idle; 0 where the row has no size.
        value: In the unit of the row; infinite where it did not come to an end.
        why: Why there is no value, as the text of a cell.
        failed: Whether something went wrong; else the contender only lacks it.
    """

    measure: str
    contender: str
    size: int = 0
    value: float = inf
    why: str = ""
    failed: bool = False


class Row(NamedTuple):
    """A row of the table: what its values are, whether more of it is better, and the decimals that are shown."""

    measure: str
    title: str
    more: bool = False
    digits: int = 0


ROWS = (
    Row("enqueue_one", "enqueue one at a time, /s", more=True),
    Row("enqueue_one_cpu", "CPU time of the producer, µs"),
    Row("enqueue_bulk", "enqueue in bulk, /s", more=True),
    Row("enqueue_bulk_cpu", "CPU time of the producer, µs"),
    Row("offer_cpu", "CPU time of the server for it, µs"),
    Row("kept", "memory of a waiting message, bytes"),
    Row("worker", "memory of it in the worker, bytes"),
    Row("transfer", "transfer of what is overdue, /s", more=True),
    Row("transfer_cpu", "CPU time of the server for it, µs"),
    Row("longest", "longest command meanwhile, ms", digits=1),
    Row("cancel", "cancel a random one, ms", digits=2),
    Row("spread_p50", "late at 100/s: median, ms", digits=1),
    Row("spread_p99", "late at 100/s: 99 %, ms", digits=1),
    Row("spread_max", "late at 100/s: all, ms", digits=1),
    Row("burst_p50", "due at once: median, ms"),
    Row("burst_p99", "due at once: 99 %, ms"),
    Row("alone", "tasks of one process, /s", more=True),
    Row("alone_cpu", "CPU time of the server for one, µs"),
    Row("idle_sent", "commands that idle workers send, /s", digits=2),
    Row("idle_commands", "commands of idle workers, with those of scripts, /s", digits=1),
    Row("idle_cpu", "CPU of the server for them, %", digits=2),
)


def tables(run: dict[str, Any]) -> Iterator[str]:
    """Yields the lines of the generated part of the page.

    Args:
        run: The contents of ``figures.json``.
    """
    names = [each["name"] for each in run["contenders"]]
    machine = ", ".join(f"{name} {value}" for name, value in run["machine"].items())
    yield from (f"Measured on {run['date']}: {machine}.", "")
    yield f"| | at | {' | '.join(names)} |"
    yield f"|---|--:|{'--:|' * len(names)}"
    for row in ROWS:
        for size in sorted({each["size"] for each in run["figures"] if each["measure"] == row.measure}):
            found = {
                each["contender"]: inf if each["value"] is None else each["value"]
                for each in run["figures"]
                if (each["measure"], each["size"]) == (row.measure, size)
            }
            cells = _cells(row, [found.get(name) for name in names])
            yield f"| {row.title} | {f'{size:,}' if size else ''} | {' | '.join(cells)} |"
    versions = {f"{package} {version}" for each in run["contenders"] for package, version in each["versions"].items()}
    yield from ("", f"Versions: {', '.join(sorted(versions, key=str.lower))}.")
    missing = [f"- {each['name']}: not in this run: {each['why_not']}" for each in run["contenders"] if each["why_not"]]
    if missing or run["gaps"]:
        yield ""
    yield from missing
    for gap in run["gaps"]:
        title = next((row.title for row in ROWS if gap["measure"] and row.measure.startswith(gap["measure"])), "all")
        at = f", {gap['size']:,}" if gap["size"] else ""
        yield f"- {gap['contender']}, {title.partition(',')[0]}{at}: {gap['why']}"


def _cells(row: Row, values: Sequence[float | None]) -> Iterator[str]:
    finite = [value for value in values if value is not None and isfinite(value)]
    best = (max if row.more else min)(finite, default=inf)
    for value in values:
        if value is None:
            yield ""
        elif not isfinite(value):
            yield "never"
        else:
            leads = value * ALIKE >= best if row.more else value <= best * ALIKE
            shown = f"{value:,.{row.digits if value < 100 else 0}f}"
            yield f"**{shown}**" if leads else shown


def write(figures: Sequence[Figure], facts: dict[str, Any], file: Path) -> None:
    """Writes the raw figures, each in a line. An infinite value, of a task that did not begin, becomes null."""
    file.parent.mkdir(parents=True, exist_ok=True)
    values = [
        {"measure": each.measure, "contender": each.contender, "size": each.size, "value": _plain(each.value)}
        for each in figures
        if not each.why
    ]
    gaps = [asdict(each) for each in figures if each.why]
    for gap in gaps:
        del gap["value"]
    parts = [f'"{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in facts.items()]
    for name, listed in (("figures", values), ("gaps", gaps)):
        lines = ",\n  ".join(json.dumps(each, ensure_ascii=False) for each in listed)
        parts.append(f'"{name}": [\n  {lines}\n]')
    file.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def read(file: Path = FIGURES) -> dict[str, Any]:
    """Returns the raw figures of a run."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _plain(value: float) -> float | None:
    """Returns a value with four significant digits."""
    return float(f"{value:.4g}") if isfinite(value) else None
