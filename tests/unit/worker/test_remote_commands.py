"""Celery's remote-control commands after a worker has taken ours in their place."""

import inspect
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from celery.signals import worker_init
from celery.worker.control import Panel

from celery_ext.worker import bootstrap
from celery_ext.worker.celery_patches import patch_commands
from kombu_delayq import hooks

OURS = {"revoke", "terminate", "scheduled", "dump_schedule", "query_task", "stats"}


@pytest.fixture
def stock() -> Iterator[dict[str, Any]]:
    """The commands as they are in Celery; others that this process has by then are given back afterwards."""
    before = dict(Panel.data)
    Panel.data.update({name: inspect.unwrap(command) for name, command in before.items()})
    yield dict(Panel.data)
    Panel.data.update(before)


def test_commands_are_replaced_once_under_all_their_names(stock: dict[str, Any]) -> None:
    """Ours have the names, aliases, signatures and help of Celery's; a second time changes nothing."""
    meta = dict(Panel.meta)
    patch_commands()
    first = dict(Panel.data)
    patch_commands()
    assert Panel.data == first
    assert Panel.meta == meta
    assert {name for name in stock if first[name] is not stock[name]} == OURS
    assert first["dump_schedule"] is first["scheduled"]
    for name in OURS:
        assert inspect.signature(first[name]) == inspect.signature(stock[name])
        assert first[name].__doc__ == stock[name].__doc__


def test_a_worker_takes_them_once_however_often_it_was_attached(stock: dict[str, Any]) -> None:
    """Attaching is repeatable, and changes no command until a worker of this process begins."""
    bootstrap.attach()
    bootstrap.attach()
    assert Panel.data == stock
    [receiver] = [each for (key, _), each in worker_init.receivers if key == "delayq-remote-control"]
    assert receiver is not None


def test_a_connection_leaves_nothing_in_signals(stock: dict[str, Any]) -> None:
    """Each new connection of a worker connects to Celery's signals again, and none leaves a finalizer there."""
    counts = set()
    for _ in range(3):
        hooks.expect_worker()
        bootstrap.begin()
        counts.add(len(weakref.finalize._registry))
    assert len(counts) == 1
