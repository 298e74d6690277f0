"""What it costs a transfer to count how many messages it moves and how late they are."""

import re
from collections.abc import Iterator
from hashlib import sha1
from statistics import median
from typing import Any
from unittest.mock import patch

import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq import scripts
from kombu_delayq.options import BACKUPS, Options
from kombu_delayq.scripts import Script
from kombu_delayq.store import DelayStore
from tests.bench.servers import main_thread_s
from tests.bench.targets.load import QUEUE, fill, within_the_last_hour
from tests.bench.targets.report import Figure

#: Most that counting may add to the CPU time of Redis for a transfer, in percent.
TARGET = 3
#: How many messages a call moves, and whether they are punctual. Messages come singly, or many at a time, or from a
#: backlog that nobody has transferred for an hour.
CASES = [(1, True), (10, True), (200, True), (200, False)]
#: What the script does in order to count, and what stands there where it does not.
COUNTING = [
    (
        r"\n    elseif not first and now - due > PUNCTUAL then\n.*?\n    end\n    if late and .*?\n    end\n",
        "\n    end\n",
    ),
    (r"\n  if late then\n.*?(?=\n  return moved)", ""),
    (r"\nif first and expire.*?\nend\n", "\n"),
    (r"local function tally.*?\nlocal PUNCTUAL = .*?\n(?=local REPLY)", ""),
]


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Moves overdue messages, by turns with the script as it is and with one that does not count."""
    for form in BACKUPS:
        for batch, punctual in CASES:
            # In Redisson's form a call moves half as many messages.
            options = Options(backup=form, transfer_batch=batch * (2 if form == "list" else 1))
            calls, rounds = max(10, 500 // batch), 60 if quick else 200
            with PrivateRedis() as own:
                store = DelayStore(redis.Redis(port=own.port), options=options)
                extra, took_us = _extra(store, calls, rounds, batch, punctual=punctual)
                store.close()
            note = f"INFO cpu, Redis's main thread; {took_us:.1f} µs a call with counting; median of {rounds} turns"
            name = f"counting, {form}, {batch} {'punctual' if punctual else 'overdue'} a call"
            yield Figure(name, extra, "%", TARGET, note=note)


def _extra(store: DelayStore, calls: int, rounds: int, batch: int, *, punctual: bool) -> tuple[float, float]:
    """Returns by how many percent a call takes longer with counting, and how many µs it takes then."""
    shares, took_us = [], []
    for turn in range(rounds + 1):
        us = {}
        for counts in (True, False) if turn % 2 else (False, True):
            fill(store, calls * batch, within_the_last_hour())
            us[counts] = _call_us(store, calls, batch, _script(store.backup, counts=counts, punctual=punctual))
        if turn:  # the first one warms up
            shares.append(100 * (us[True] / us[False] - 1))
            took_us.append(us[True])
    return median(shares), median(took_us)


def _call_us(store: DelayStore, calls: int, batch: int, script: Script) -> float:
    """Returns the CPU time of Redis for a call in µs, over some calls."""
    client: Any = store.client
    client.script_load(script.text)
    with patch.object(scripts, "load", lambda *_: script):
        done, moved, before_s = 0, 1, main_thread_s(client)
        while moved:
            moved = store.delivery.transfer(QUEUE).moved
            done += 1
        took_s = main_thread_s(client) - before_s
    if client.llen(QUEUE) != calls * batch:
        raise RuntimeError(f"{client.llen(QUEUE)} of {calls * batch} messages were moved")
    client.unlink(QUEUE)
    return took_s / done * 1e6


def _script(form: str, *, counts: bool, punctual: bool) -> Script:
    """Returns the transfer script, with counting or without; with ``punctual`` it takes every message as punctual."""
    text = scripts.load("transfer", form).text
    changes = ([] if counts else COUNTING) + (
        [(r"now - due > PUNCTUAL", "now - due > 1e15")] if punctual and counts else []
    )
    for wanted, instead in changes:
        text, found = re.subn(wanted, lambda _, instead=instead: instead, text, flags=re.DOTALL)  # type: ignore[misc]
        if not found:
            raise RuntimeError(f"the transfer script has changed: {wanted!r} is not in it")
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())
