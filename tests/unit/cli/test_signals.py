"""Signals that end a command."""

import signal
import subprocess
import sys

import pytest

from celery_ext.cli.signals import signals_as_interrupt

pytestmark = pytest.mark.wide


def test_a_hangup_ends_a_command_unless_it_is_ignored() -> None:
    """SIGHUP is as Ctrl-C, but under `nohup`, which lets a command ignore it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_as_interrupt():
            signal.raise_signal(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with pytest.raises(KeyboardInterrupt), signals_as_interrupt():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


#: A worker whose own thread gets the signal, as the system may choose, while the main thread waits.
OF_ANOTHER_THREAD = """
import signal, sys
from threading import Event, get_ident, main_thread
from types import SimpleNamespace
from celery_ext.cli.daemon import run_until_stopped

stopping = Event()

def run():
    while sys._current_frames()[main_thread().ident].f_code.co_name != "run_until_stopped":
        pass
    signal.pthread_kill(get_ident(), signal.SIGTERM)
    stopping.wait()

run_until_stopped(SimpleNamespace(run=run, stop=stopping.set), SimpleNamespace(under_way=False))
print("ended")
"""


def test_a_signal_that_another_thread_gets_ends_a_daemon() -> None:
    """No wait of the main thread is interrupted by it, and handlers run in the main thread alone."""
    found = subprocess.run([sys.executable, "-c", OF_ANOTHER_THREAD], capture_output=True, text=True, timeout=100)
    assert (found.returncode, found.stdout) == (0, "ended\n"), found.stderr
