"""Writes the tables of the documentation from the code: ``python docs/generate.py``, with ``--check`` only looks.

A table stands in its page between ``<!-- generated: NAME -->`` and ``<!-- end -->``, so that the page can be read
without a build. Neither needs Sphinx or Spark.
"""

import copy
import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from types import ModuleType

import click

from celery_ext.cli import delayq
from celery_ext.doctor import Level, all_alerts, all_checks
from celery_ext.features import key_names
from celery_ext.journal import errors as journal_errors
from celery_ext.spark import errors as spark_errors
from celery_ext.spark import options as spark_options
from kombu_delayq import errors, urls
from kombu_delayq.cluster import SlotKeys
from kombu_delayq.errors import DelayqError
from kombu_delayq.message import once
from kombu_delayq.options import Options
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.redisson_layout import RedissonKeys

Lines = Iterator[str]

DOCS = Path(__file__).parent
#: Columns of the help texts, whatever the terminal has.
WIDTH = 100
#: What the docstring of a key or channel begins with.
_TYPE = re.compile(r"(STRING|HASH|SET|ZSET|LIST|STREAM|Channel)\b")
#: What those keys are named after that belong to no queue, or to more than a queue.
_NAMES: dict[str, list[object]] = {
    **{key: ["nightly"] for key in ("job", "guard")},
    **{key: [""] for key in ("unacked", "unacked_index", "consumers", "consumed", "paused")},
    "stream": ["clicks"],
    "sender": ["5f0e5c7e", "orders"],
    **{key: ["9b74c989"] for key in ("answer", "shared_run", "shared_run_commands")},
    "in_flight": ["orders", 0, "web1:4711:5f0e5c7e"],
    "minutes": ["orders", 495_000],
}
_GENERATED = re.compile(r"(<!-- generated: ([\w ./-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def options() -> Lines:
    """Yields a row for each transport option."""
    yield from _option_rows(dataclasses.fields(Options), repr)


def spark_option_rows(kind: type) -> Lines:
    """Yields a row for each option of the data source that a class adds to those of its base."""
    above = {field.name for base in kind.__bases__ if base is not object for field in dataclasses.fields(base)}
    added = [field for field in dataclasses.fields(kind) if field.name not in above]
    yield from _option_rows(added, _as_spark_has_it)


def _option_rows(fields: "list[dataclasses.Field] | tuple[dataclasses.Field, ...]", shown: Callable) -> Lines:
    yield from _table("option", "default", "unit", "effect")
    for field in fields:
        default = shown(field.default)
        yield _row(f"`{field.name}`", f"`{default}`" if default else "", field.metadata["unit"], field.metadata["help"])


def _as_spark_has_it(value: object) -> str:
    """Returns a default as a user of Spark would write it, nothing where there is none."""
    if value is None:
        return ""
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return shown.lower() if isinstance(value, bool) else shown


def keys() -> Lines:
    """Yields a row for each key and channel, which are those members whose docstring begins with a type."""
    yield from _table("name", "holds")
    for names in (Keys(), SlotKeys(), *(kind(Keys()) for kind in (RedissonKeys, *key_names()))):
        for name, member in vars(type(names)).items():
            holds = inspect.getdoc(member) or ""
            if not _TYPE.match(holds):
                continue
            found = getattr(names, name)
            yield _row(f"`{found if isinstance(found, str) else found(*_NAMES.get(name, ['orders']))}`", holds)


def commands(command: click.Command = delayq, name: str = "delayq", known: set[tuple[str, ...]] | None = None) -> Lines:
    """Yields a heading, the first sentence of the help text and the options for a command and each of its subcommands.

    An option that a command above has with the same words is only named.
    """
    known = set() if known is None else known
    context = click.Context(command, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH)
    options = {one: (*one.opts, one.help or "") for one in command.params if isinstance(one, click.Option)}
    again = [one for one, words in options.items() if words in known]
    known |= set(options.values())
    shown = copy.copy(command)
    shown.params = [one for one in command.params if one not in again]
    shown.add_help_option = command is delayq
    summary, *_ = (inspect.cleandoc(command.help or "")).split("\n\n")
    yield from (f"## `{name}`", "", *summary.splitlines(), "")
    formatter = context.make_formatter()
    click.Command.format_options(shown, context, formatter)
    usage = " ".join((name, *(piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]")))
    lines = formatter.getvalue().splitlines()[1:]
    also = [f"  Also: {', '.join(one.opts[-1] for one in again)}"] if again else []
    if lines or also or command.params:
        yield from ("```text", usage, *([""] if lines else []), *lines, *([""] if also else []), *also, "```", "")
    for sub in command.commands.values() if isinstance(command, click.Group) else ():
        yield from commands(sub, f"{name} {sub.name}", known)


def doctor_checks() -> Lines:
    """Yields a line for each check of `delayq doctor`, below those that need the same."""
    for needs, checks in groupby(all_checks(), key=lambda check: check.needs):
        yield from (f"With {' and '.join(need.value for need in needs)}:", "")
        yield from (f"- `{check.name}`: {inspect.getdoc(check.look)}".replace("``", "`") for check in checks)
        yield ""


def error_rows(module: ModuleType) -> Lines:
    """Yields a row for each exception class of a module."""
    yield from _table("error", "also a", "meaning")
    for name, kind in vars(module).items():
        if isinstance(kind, type) and issubclass(kind, DelayqError) and kind.__module__ == module.__name__:
            also = ", ".join(f"`{base.__name__}`" for base in kind.__bases__ if base is not DelayqError)
            yield _row(f"`{name}`", also, (inspect.getdoc(kind) or "").partition("\n\n")[0])


def _shown(path: Path) -> str:
    return path.relative_to(DOCS.parent).as_posix()


def _table(*titles: str) -> Lines:
    yield from (_row(*titles), f"|{'---|' * len(titles)}")


def _row(*cells: str | None) -> str:
    """Returns a row of a table. A cell is Markdown on one line, with code in single backticks."""
    shown = (" ".join((cell or "").split()).replace("``", "`").replace("|", r"\|") for cell in cells)
    return f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in shown)}|"


def celery_patches() -> Lines:
    """Yields a row for each thing of Celery and kombu that a worker replaces."""
    from celery_ext.worker.celery_patches import PATCHES  # brings in all of Celery's worker

    yield from _table("what", "why", "where", "with False")
    for patch in PATCHES:
        yield _row(patch.of, patch.why, f"`{patch.where}`", "the same" if patch.stays else "Celery's own")


def modes_of_if_waiting() -> Lines:
    """Yields a row for each mode of ``if_waiting``."""
    defaults = {once.ADD: ", the default without a key", once.WITH_KEY: ", the default with a key"}
    yield from _table("`if_waiting`", "the task that waits", "the new one", "good for")
    for word, mode in once.MODES.items():
        yield _row(f'`"{word}"`{defaults.get(word, "")}', *mode)


def url_schemes() -> Lines:
    """Yields a row for the schemes of broker URLs that mean the same."""
    yield from _table("stock", "kombu-delayq")
    for _, alike in groupby(sorted(urls.SCHEMES.items(), key=_meaning), key=_meaning):
        names, [scheme, *_] = zip(*alike, strict=True)
        stock = f"`{'redis+' * (scheme.stock == 'socket')}{scheme.stock}://`" if scheme.stock else "none"
        tls = ": TLS, with certificate and name checked" if scheme.checks else ""
        yield _row(stock, f"{', '.join(f'`{name}://`' for name in names)}{tls}")


def _meaning(item: tuple[str, urls.Scheme]) -> tuple[int, bool]:
    """Returns by what schemes are alike, in the order of the table."""
    stock = [*dict.fromkeys(scheme.stock for scheme in urls.SCHEMES.values())]
    return stock.index(item[1].stock), item[1].checks


def http_routes() -> Lines:
    """Yields a heading and a table for each group of routes of the HTTP API."""
    from celery_ext.serve.application import routes  # needs the extra `serve`

    shown = [route for route in routes() if route.doc is not None]
    for tag in dict.fromkeys(route.doc.tag for route in shown):
        yield from (f"### {tag}", "")
        yield from _table("route", "action", "what it does")
        for route in shown:
            if route.doc.tag == tag:
                path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
                action = f"`{route.action}`" if route.action else "open to all"
                yield _row(f"`{route.method} {path}`", action, route.doc.summary.removesuffix("."))
        yield ""


def benchmarks() -> Lines:
    """Yields the tables of the last run of ``make bench``."""
    sys.path.insert(0, str(DOCS.parent))
    from tests.bench import figures

    yield from figures.tables(figures.read())


def chaos() -> Lines:
    """Yields a row for each kind of servers of the recorded runs of ``make chaos``."""
    sys.path.insert(0, str(DOCS.parent))
    from tests.chaos import record

    heading, *rows = record.table()
    yield from _table(*heading)
    yield from (_row(*row) for row in rows)


def alert_rules() -> Lines:
    """Yields the file of alert rules, as monitoring mixins are laid out."""
    yield "# Alerts on delayed delivery, made by docs/generate.py from the conditions of `delayq doctor`."
    yield "# Load it with `rule_files` of Prometheus; `promtool test rules alerts_test.yaml` tests it."
    yield "# Each expression takes the largest value of all exporters of one Redis, so any number of them may run."
    yield "# The annotation `runbook` is a command that prints what to do."
    yield from ("groups:", "  - name: delayq", "    rules:")
    for alert in all_alerts():
        yield f"      - alert: {alert.name}"
        yield from _folded("        expr", alert.expr)
        if alert.lasts:
            yield f"        for: {alert.lasts}"
        yield from ("        labels:", f"          severity: {_SEVERITIES[alert.level]}", "        annotations:")
        yield from _folded("          summary", alert.summary)
        yield from _folded("          description", alert.description)
        yield f"          runbook: delayq doctor --explain {alert.name}"


_SEVERITIES = {Level.ERROR: "critical", Level.WARNING: "warning"}


def _folded(name: str, value: str) -> Lines:
    indent = " " * (len(name) - len(name.lstrip()) + 2)
    yield f"{name}: >-"
    yield from (f"{indent}{line}" for line in wrap(value, 110, break_long_words=False, break_on_hyphens=False))


#: Files that are made as a whole.
FILES: dict[Path, Callable[[], Lines]] = {DOCS / "monitoring/alerts.yaml": alert_rules}

TABLES: dict[str, Callable[[], Lines]] = {
    "options": options,
    "spark options for writing and reading": lambda: spark_option_rows(spark_options.BrokerOptions),
    "spark options for writing": lambda: spark_option_rows(spark_options.WriteOptions),
    "spark options for reading": lambda: spark_option_rows(spark_options.ReadOptions),
    "keys": keys,
    "commands": commands,
    "doctor checks": doctor_checks,
    "schemes of broker URLs": url_schemes,
    "modes of if_waiting": modes_of_if_waiting,
    "errors": lambda: error_rows(errors),
    "journal errors": lambda: error_rows(journal_errors),
    "spark errors": lambda: error_rows(spark_errors),
    "http routes": http_routes,
    "celery patches": celery_patches,
    "benchmarks": benchmarks,
    "chaos": chaos,
}


def current(page: str) -> str:
    """Returns a page with the tables that the code gives now.

    Raises:
        KeyError: The page asks for a table that nothing makes.
    """
    return _GENERATED.sub(lambda at: "\n".join((at[1], *TABLES[at[2]](), "", at[3])), page)


def main(check: bool) -> int:
    """Writes the pages that are not current, or only names them. Returns 1 if it was to check and found one."""
    stale = []
    pages = (path for path in sorted(DOCS.rglob("*.md")) if "_build" not in path.parts)
    for path in (*FILES, *pages):
        text = path.read_text(encoding="utf-8")
        wanted = "".join(f"{line}\n" for line in FILES[path]()) if path in FILES else current(text)
        if text != wanted:
            stale.append(_shown(path))
            if not check:
                path.write_text(wanted, encoding="utf-8")
    for name in stale:
        print(
            f"{name} is not what the code says: run make reference, or python docs/generate.py"
            if check
            else f"wrote {name}"
        )
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
