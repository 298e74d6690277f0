"""Completion by the shell: the script, and what a real bash does with it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.commands.shell import BIN, Terminal
from tests.support.workers.harness import Proj

pytestmark = pytest.mark.wide

PROMPT = "ready> "
#: Makes the line a comment, and ends it. Ctrl-C could come while bash still completes.
DROP = "\x01#\n"


@pytest.fixture
def bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """An interactive bash that has the script, as its startup file loads it."""
    path = shutil.which("bash")
    assert path, "bash is missing"
    startup = tmp_path / "bashrc"
    script = 'eval "$(_DELAYQ_COMPLETE=bash_source delayq)"'
    startup.write_text(f"PS1='{PROMPT}'\nbind 'set enable-bracketed-paste off'\n{script}\n")
    for name, value in {"PATH": f"{BIN}:{os.environ['PATH']}", "INPUTRC": os.devnull, "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    shell = Terminal([path, "--noprofile", "--rcfile", str(startup), "-i"], columns=250)
    try:
        shell.read_until(PROMPT)
        yield shell
    finally:
        shell.close()


def _completed(bash: Terminal, line: str, becomes: str) -> None:
    """Types the beginning of a line and a tab, waits for what bash makes of it, and drops the line."""
    bash.script = ""
    bash.press(f"{line}\t")
    for _ in range(9):
        with suppress(AssertionError):  # the broker may answer too late on a busy machine: then a tab asks once more
            bash.read_until(becomes, 10)
            break
        bash.press("\t")
    bash.read_until(becomes)
    bash.script = ""
    bash.press(DROP)
    bash.read_until(f"\n{PROMPT}")


def test_a_real_bash_completes_commands_and_queues(bash: Terminal, proj: Proj) -> None:
    """Behind the URL of a broker, whose colons break words for bash, and with a colon in the name of the queue, too."""
    for queue in ("orders", "mails:urgent"):
        proj.send("record", countdown=3600, queue=queue)
    broker = f"delayq -b {proj.server.url}"
    _completed(bash, "delayq resch", "delayq reschedule ")
    _completed(bash, f"{broker} list or", "list orders ")
    _completed(bash, f"{broker} -o global_keyprefix='' list mails:u", "list mails:urgent ")
    _completed(bash, f"{broker} list --queue=or", "list --queue=orders ")


def test_in_a_real_bash_completion_is_silent_without_a_broker(bash: Terminal) -> None:
    """Nothing is written into the line where the broker is away, and what is typed goes on."""
    bash.press("delayq -b redis://127.0.0.1:1 list or\tXYZ")
    bash.read_until("XYZ")
    assert "delayq -b redis://127.0.0.1:1 list orXYZ" in bash.script.replace("\x07", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_for_the_command_that_printed_it(shell: str) -> None:
    """`celery` completes as `delayq` does; each script asks its command by the variable that click reads."""
    of_delayq, of_celery = (
        subprocess.run(
            [BIN / name],
            env=os.environ | {f"_{name.upper()}_COMPLETE": f"{shell}_source"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in ("delayq", "celery")
    )
    assert f"_DELAYQ_COMPLETE={shell}_complete" in of_delayq
    assert of_celery == of_delayq.replace("delayq", "celery").replace("DELAYQ", "CELERY")
    assert ("_whole" in of_delayq) == (shell == "bash")
