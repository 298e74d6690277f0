"""The examples in the help texts of the commands."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from celery_ext.cli import delayq
from celery_ext.cli.group import EXAMPLES

COLUMNS = 80


def _commands(command: click.Command = delayq, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(words) or "delayq", command
    for name, sub in command.commands.items() if isinstance(command, click.Group) else ():
        yield from _commands(sub, (*words, name))


COMMANDS = dict(_commands())


def _arguments(line: str) -> list[str]:
    """Returns what stands behind ``delayq`` in a line for a shell."""
    [part] = [part for part in re.split(r"[|<>()]", line) if re.search(r"\bdelayq [a-z-]", part)]
    words = shlex.split(part)
    return words[words.index("delayq") + 1 :]


def _noting(name: str, ran: list[str]) -> Callable[..., None]:
    return lambda *_, **__: ran.append(name)


def test_each_command_has_examples() -> None:
    """Its help text shows them, each in one line of a usual terminal, as does that of its group; none is of no command.

    The group of all shows its own alone.
    """
    groups = {name for name, command in COMMANDS.items() if isinstance(command, click.Group)} - {"delayq"}
    assert EXAMPLES.keys() == COMMANDS.keys() - groups
    for name, command in COMMANDS.items():
        shown = command.get_help(click.Context(command, info_name=name, terminal_width=COLUMNS))
        below = [each for each in EXAMPLES if each == name or each.startswith(f"{name} ")]
        for example, what in (pair for each in below for pair in EXAMPLES[each].items()):
            assert f"\n    # {what}\n    {example}\n" in f"{shown}\n", name
            assert max(len(example), len(what) + 2) + 4 <= COLUMNS, example


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_right(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each is a line that its command, or one below it, reads without an error."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "backlog.jsonl").touch()
    ran: list[str] = []
    for path, command in COMMANDS.items():
        if not isinstance(command, click.Group):
            monkeypatch.setattr(command, "callback", _noting(path, ran))
    for example in EXAMPLES[name]:
        done = CliRunner().invoke(delayq, _arguments(example))
        assert done.exit_code == 0, (example, done.output, done.exception)
    assert len(ran) == len(EXAMPLES[name])
    assert name == "delayq" or all(path == name or path.startswith(f"{name} ") for path in ran), ran
