"""Directives that make reference pages from the code, so that nothing is written down twice."""

import dataclasses
import inspect
import re
from collections.abc import Iterator

import click
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from celery_ext.cli import delayq
from celery_ext.spark import errors as spark_errors
from celery_ext.spark import options as spark_options
from kombu_delayq import errors, scripts
from kombu_delayq.errors import DelayqError
from kombu_delayq.options import Options
from kombu_delayq.store.keys import Keys

Lines = Iterator[str]


class Generated(SphinxDirective):
    """Parses the Markdown that a subclass writes."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        """Returns what the lines say, as nodes."""
        self.content = StringList(list(self.lines()), source=f"<{self.name}>")
        return self.parse_content_to_nodes(allow_section_headings=True)

    def lines(self) -> Lines:
        """Yields lines of Markdown."""
        raise NotImplementedError


class OptionTable(Generated):
    """Table of the transport options."""

    def lines(self) -> Lines:
        """Yields a row for each field of ``Options``."""
        yield from ("| option | default | unit | effect |", "|---|---|---|---|")
        for field in dataclasses.fields(Options):
            unit, effect = field.metadata["unit"], field.metadata["help"]
            yield f"| `{field.name}` | `{field.default!r}` | {unit} | {effect} |"


class SparkOptionTable(Generated):
    """Table of options of the Spark data source: those of a class that are not in the class above it."""

    required_arguments = 1

    def lines(self) -> Lines:
        """Yields a row for each field that the class adds."""
        kind = getattr(spark_options, self.arguments[0])
        above = {field.name for base in kind.__bases__ if base is not object for field in dataclasses.fields(base)}
        yield from ("| option | default | unit | effect |", "|---|---|---|---|")
        for field in dataclasses.fields(kind):
            if field.name not in above:
                unit, effect = field.metadata["unit"], field.metadata["help"]
                yield f"| `{field.name}` | {_spark_default(field.default)} | {unit} | {effect} |"


class KeyTable(Generated):
    """Table of the keys, for a queue ``orders``, a bulk job ``nightly`` and a stream ``clicks`` of database 0."""

    def lines(self) -> Lines:
        """Yields a row for each key and channel."""
        keys = Keys()
        of_default = {what: getattr(keys, what)("orders") for what in ("due", "backup", "order", "twins")}
        of_redisson = {what: getattr(keys, what)("orders") for what in ("timeout", "listed", "channel", "notes", "ids")}
        of_queue = {**of_default, **of_redisson, "replaying": keys.replaying("orders")}
        of_job = {what: getattr(keys, what)("nightly") for what in ("job", "guard", "staged")}
        of_job["stream"] = keys.stream("clicks")
        leases = ("lease", "deputy", "second_deputy")
        of_all = {what: getattr(keys, what) for what in ("queues", "cancelled", *leases, "runs", "wake")}
        yield from ("| name | holds |", "|---|---|")
        for what, name in {**of_queue, **of_job, **of_all}.items():
            yield f"| `{name}` | {inspect.getdoc(getattr(Keys, what))} |"


class ScriptHeaders(Generated):
    """Header of each Lua script."""

    def lines(self) -> Lines:
        """Yields a heading, a sentence and the rest of the header for each script."""
        for path in sorted(scripts.directory().glob("*.lua")):
            header = [line[3:] for line in _header(path.read_text(encoding="utf-8"))]
            kept = [line for line in header if not line.startswith(("@include", "@other"))]
            yield from (f"## `{path.stem}`", "", kept[0], "", "```text", *kept[1:], "```", "")


class Commands(Generated):
    """Help of the ``delayq`` command and of each of its subcommands."""

    def lines(self) -> Lines:
        """Yields a heading and the help text for each command."""
        yield from _helps(delayq, "delayq")


class ErrorTable(Generated):
    """Table of the exceptions, of the transport or of the Spark data source."""

    optional_arguments = 1

    def lines(self) -> Lines:
        """Yields a row for each exception class."""
        module = {"spark": spark_errors}[self.arguments[0]] if self.arguments else errors
        yield from ("| error | also a | meaning |", "|---|---|---|")
        for name, kind in vars(module).items():
            if isinstance(kind, type) and issubclass(kind, DelayqError) and kind.__module__ == module.__name__:
                also = ", ".join(f"`{base.__name__}`" for base in kind.__bases__ if base is not DelayqError)
                yield f"| `{name}` | {also} | {inspect.getdoc(kind)} |"


def _spark_default(value: object) -> str:
    """Returns a default as a user would write it, nothing where there is none."""
    if value is None:
        return ""
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"`{shown.lower() if isinstance(value, bool) else shown}`"


def _header(source: str) -> list[str]:
    match = re.match(r"(?:--.*\n)+", source)
    return match[0].splitlines() if match else []


def _helps(command: click.Command, name: str) -> Lines:
    yield from _help(command, click.Context(command, info_name=name))
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        yield from _helps(each, f"{name} {each.name}")


def _help(command: click.Command, context: click.Context) -> Lines:
    yield from (f"## `{context.info_name}`", "", "```text", *command.get_help(context).splitlines(), "```", "")


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directives."""
    app.add_directive("delayq-options", OptionTable)
    app.add_directive("delayq-spark-options", SparkOptionTable)
    app.add_directive("delayq-keys", KeyTable)
    app.add_directive("delayq-scripts", ScriptHeaders)
    app.add_directive("delayq-commands", Commands)
    app.add_directive("delayq-errors", ErrorTable)
    return {"parallel_read_safe": True}
