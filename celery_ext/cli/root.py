"""The group ``delayq`` with all commands.

To import it also registers the broker URL schemes, and attaches the worker's part.
"""

import sys
from io import TextIOWrapper
from typing import Any

import click

from celery_ext.cli.broker import CliBroker, given_app, parse_transport_options
from celery_ext.cli.commands.change import cancel, reschedule, run_now
from celery_ext.cli.commands.convert import convert
from celery_ext.cli.commands.export import export
from celery_ext.cli.commands.import_ import import_
from celery_ext.cli.commands.list import count, list_
from celery_ext.cli.commands.queues import queues
from celery_ext.cli.commands.show import show
from celery_ext.cli.commands.status import status
from celery_ext.cli.commands.transfer import transfer
from celery_ext.cli.completion import complete_whole_words
from celery_ext.cli.group import EXAMPLES, SectionedGroup, add_examples, open_closed
from celery_ext.cli.output import audit_file, choice
from celery_ext.features import modules_of
from celery_ext.worker import bootstrap
from kombu_delayq import __version__

_EPILOG = """
\b
Exit codes:
  0  Done.
  1  The command failed, in whole or in part, or found nothing to work on; stderr says what.
  2  The command line is wrong, or the command needs --yes because it cannot ask anybody.

\b
The shell completes commands, options and queues:
  eval "$(_DELAYQ_COMPLETE=bash_source delayq)"  # also zsh_source and fish_source
"""


def _refuse_app(context: click.Context, parameter: click.Parameter, given: str | None) -> None:
    if given is not None:
        raise click.UsageError(f"the app belongs to Celery's command: celery -A {given} delayq …")


_SECTIONS: dict[str, list[click.Command]] = {
    "Look": [status, list_, count, show],
    "Change": [cancel, reschedule, run_now, queues],
    "Run": [transfer],
    "Mend": [convert, export, import_],
}
_BROUGHT = modules_of("command", but="cli")
for module in _BROUGHT:
    _SECTIONS[module.SECTION] += module.COMMANDS


@click.group(
    cls=SectionedGroup,
    sections=_SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)
@click.version_option(__version__, package_name="kombu-delayq")
@click.option(
    "-b",
    "--broker",
    metavar="URL",
    envvar=["DELAYQ_BROKER_URL", "CELERY_BROKER_URL"],
    help="Broker URL, as in Celery's broker_url; several separated by ';'. By default the app's, else one of "
    "the environment.",
)
@click.option(
    "-o",
    "--transport-option",
    "options",
    metavar="NAME=VALUE",
    multiple=True,
    callback=parse_transport_options,
    help="A transport option, such as -o master_name=main. The value is JSON, or else text. Repeatable.",
)
@click.option(
    "--audit-log",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    envvar="DELAYQ_AUDIT_LOG",
    help="Append the lines of the log kombu_delayq.audit to this file.",
)
@click.option("-A", "--app", metavar="APP", expose_value=False, is_eager=True, hidden=True, callback=_refuse_app)
@click.option("-C", "--no-color", is_flag=True, help="Print no colours.")
@click.pass_context
def delayq(context: click.Context, /, **params: Any) -> None:
    """Look after the delayed messages of Celery on Redis."""
    open_closed()
    # A message may have characters that the terminal's encoding lacks.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    context.color = choice(refused=params["no_color"] or getattr(context.obj, "no_color", False))
    if params["audit_log"]:
        context.with_resource(audit_file(params["audit_log"]))
    # Inside `celery -A app delayq`, the context's object is Celery's and holds the app. In some versions of Celery,
    # `params` has the app's own preload options, too.
    context.obj = CliBroker.of(context, given_app(getattr(context.obj, "app", None)))


for module in _BROUGHT:
    EXAMPLES.update(module.EXAMPLES)
    delayq.params[-3:-3] = getattr(module, "OPTIONS", ())  # behind the other options about the broker
add_examples(delayq)
complete_whole_words()
bootstrap.attach()


def main() -> None:
    """Runs the command from the shell."""
    delayq(prog_name="delayq")
