"""Signals that end a command."""

import signal

import pytest

from celery_ext.cli.signals import signals_as_interrupt


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
