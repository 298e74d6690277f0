"""``delayq doctor``."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict

import click

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.group import Reader
from celery_ext.cli.options import duration, json_option
from celery_ext.cli.output import bad, escaped, fit_table, good, number_of, warning
from celery_ext.doctor.checks import all_checks
from celery_ext.doctor.examination import ANSWERS_S, examine
from celery_ext.doctor.finding import Finding, NoSuchText, explain, id_of
from celery_ext.health import Level

SECTION = "Look"
EXAMPLES = {
    "doctor": {
        "celery -A shop delayq doctor": "All checks",
        "celery -A shop delayq doctor --only clock --only eviction": "Two of them",
        "celery -A shop delayq doctor --json | jq '.findings[].found'": "For a script",
    },
}

_COLOURS: dict[Level, Callable[[str], str]] = {
    Level.OK: good,
    Level.NOTICE: str,
    Level.WARNING: warning,
    Level.ERROR: bad,
}
#: Widths of the first two columns.
_LEVEL, _NAME = max(map(len, Level)), max(len(check.name) for check in all_checks())

_EPILOG = """
\b
Exit codes:
  0  No warning and no error.
  1  A warning or an error.
  2  The command line is wrong.
"""


@click.command(cls=Reader, epilog=_EPILOG)
@click.option(
    "--only",
    metavar="CHECK",
    multiple=True,
    type=click.Choice([check.name for check in all_checks()]),
    help="Make this check only. Repeatable; --list names them.",
)
@click.option("--list", "is_list", is_flag=True, help="List the checks, and end.")
@click.option(
    "--explain",
    "text_id",
    metavar="ID",
    help="Print the documentation of a finding or of an alert, such as DelayqNoLeader, and end.",
)
@click.option("--quiet", is_flag=True, help="Show warnings and errors only.")
@click.option(
    "--timeout",
    "timeout_s",
    type=duration,
    default=f"{ANSWERS_S:g}",
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for workers to answer.",
)
@json_option("Print one JSON object instead.")
@click.pass_obj
def doctor(
    broker: CliBroker,
    /,
    only: tuple[str, ...],
    is_list: bool,
    text_id: str | None,
    quiet: bool,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Look for what keeps delayed tasks from running as they should, and say what to do.

    It checks the app of `celery -A app`, its settings and URLs, the Redis behind them, what waits there, and the
    workers, which it asks by remote control. It changes nothing. Without an app it checks the broker and the workers.
    """
    if text_id is not None:
        try:
            click.echo(explain(text_id))
        except NoSuchText as error:
            raise click.UsageError(str(error)) from error
        return
    checks = [check for check in all_checks() if not only or check.name in only]
    if is_list:
        rows = [(check.name, check.question, " and ".join(need.value for need in check.needs)) for check in checks]
        names = "check", "question", "needs"
        as_rows = [dict(zip(names, row, strict=True)) for row in rows]
        shown = [json.dumps(as_rows, indent=2)] if as_json else fit_table([*map(str.upper, names)], rows)
        click.echo("\n".join(shown))
        return
    findings = []
    if broker.app is None and not as_json:
        click.echo("no app is given, so no settings are checked: celery -A app delayq doctor checks them, too\n")
    # This process asks workers, but shall not become a transfer worker.
    for finding in examine(checks, broker.app, lambda: broker.connection({"transfer": False}, hurried=True), timeout_s):
        findings.append(finding)
        if not as_json and (finding.level.is_bad or not quiet):
            click.echo("\n".join(_lines(finding)))
    if as_json:
        click.echo(json.dumps(_report(findings, broker), indent=2))
    else:
        click.echo(_sum(findings))
    raise SystemExit(int(any(finding.level.is_bad for finding in findings)))


def _report(found: Sequence[Finding], broker: CliBroker) -> dict[str, object]:
    counts = Counter(finding.level for finding in found)
    return {
        "app": broker.app and broker.app.main,
        "bad": any(finding.level.is_bad for finding in found),
        "counts": {str(level): counts[level] for level in Level},
        "findings": [asdict(finding) for finding in found],
    }


def _lines(finding: Finding) -> Iterable[str]:
    """Yields the lines of a finding: what was found, what to do, and where to read on."""
    level = _COLOURS[finding.level](f"{finding.level:<{_LEVEL}}")
    yield f"{level}  {finding.check:<{_NAME}}  {escaped(finding.found)}"
    indent = " " * (_LEVEL + _NAME + 4)
    if finding.do:
        yield f"{indent}→ {escaped(finding.do)}"
    if finding.page:
        yield f"{indent}  more: delayq doctor --explain {id_of(finding)}"


def _sum(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.level for finding in findings)
    parts = [
        _COLOURS[level](number_of(counts[level], level, "ok" if level is Level.OK else ""))
        for level in (Level.ERROR, Level.WARNING, Level.NOTICE, Level.OK)
        if counts[level]
    ]
    return f"\n{', '.join(parts)}"


COMMANDS = (doctor,)
