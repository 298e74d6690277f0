"""Asks the workers behind a broker for their settings, and reads their replies."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from celery import Celery
from celery.app.control import Control
from kombu.connection import Connection
from kombu.transport import redis as stock

from celery_ext.facts import FIELD, as_json

#: Those of kombu that remote control shows: it hides each whose name has KEY in it.
_OF_STOCK = ("sep", "priority_steps", "fanout_prefix", "visibility_timeout")
#: How the report of a worker names packages and the transport. Source: celery.app.utils.BUGREPORT_INFO.
_PACKAGE = re.compile(r"\b(celery|kombu|redis):(\d[\w.]*)")
_TRANSPORT = re.compile(r"\btransport:(\S*)")


def options_of_stock(given: dict[str, Any]) -> dict[str, Any]:
    """Returns those of the options that remote control shows of a stock worker which should be like those of others."""
    return as_json({name: given.get(name, getattr(stock.Channel, name)) for name in _OF_STOCK})


@dataclass(frozen=True)
class Worker:
    """A worker that answers.

    Attributes:
        name: Its node name.
        pid: Its process on its host.
        transport: Name of its transport.
        ours: Whether that is ours.
        versions: Versions by package.
        options: Its transport options that should be like those of others, as JSON has them.
        queues: Names of the queues that it consumes.
        prefetch: How many messages it may hold; 0 for any number, or if it does not tell.
        clock_s: What it takes for the time, s since the epoch; None if it does not tell.
        between_s: Between which times of this process it has looked at its clock, s since the epoch.
        running: The names of its running tasks, and since when each runs, s since the epoch by its clock.
        tasks: The names of the tasks that it knows, without Celery's own; empty if it does not tell.
    """

    name: str
    pid: int
    transport: str
    ours: bool
    versions: Mapping[str, str]
    options: Mapping[str, Any]
    queues: Sequence[str]
    prefetch: int
    clock_s: float | None
    between_s: tuple[float, float]
    running: Sequence[tuple[str, float]]
    tasks: frozenset[str] = frozenset()

    @property
    def fetches(self) -> bool:
        """Whether it consumes by ``fetch``, so that no visibility timeout counts for what it holds."""
        return self.ours and self.options.get("consume", "reliable") == "reliable"


def ask(app: Celery | None, connection: Connection, timeout_s: float) -> list[Worker]:
    """Asks all workers, and returns those that answer, by name.

    Args:
        app: An app with the workers' settings of remote control; None for Celery's defaults.
        connection: A connection to the broker, which need not be that of the app.
        timeout_s: How long to wait for the first answers; all others come as soon as each of these workers has
            answered again.
    """
    bound, begun_s, arrived_s = _mailbox(app, connection), time(), dict[str, float]()

    def again(command: str, names: Sequence[str]) -> dict[str, Any]:
        return _by_name(bound.call(list(names), command, timeout=timeout_s)) if names else {}

    def note(reply: Mapping[str, Any]) -> None:
        arrived_s.update(dict.fromkeys(reply, time()))

    stats = _by_name(bound.multi_call("stats", timeout=timeout_s, callback=note))
    names = sorted(stats)
    queues, active, registered = (again(command, names) for command in ("active_queues", "active", "registered"))
    silent = [name for name in names if FIELD not in stats[name]]
    reports, confs = again("report", silent), again("conf", silent)
    return [
        _worker(
            name,
            stats[name],
            (begun_s, arrived_s.get(name, time())),
            queues.get(name),
            active.get(name),
            registered.get(name),
            reports.get(name) or {},
            confs.get(name) or {},
        )
        for name in names
    ]


def running(app: Celery | None, connection: Connection, timeout_s: float) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Asks all workers what they run, and returns what Celery's ``active`` says, by their names.

    Args:
        app: As of ``ask``.
        connection: As of ``ask``.
        timeout_s: How long to wait for answers.
    """
    return _by_name(_mailbox(app, connection).multi_call("active", timeout=timeout_s))


def _mailbox(app: Celery | None, connection: Connection) -> Any:
    mailbox = Control(app if app is not None else Celery(set_as_current=False)).mailbox
    mailbox.producer_pool = None  # it is of the app's broker; without it, the connection sends, too
    return mailbox(connection)


def _by_name(replies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the replies of workers by their names; an error that a worker reports is none."""
    found = {name: reply for each in replies or () for name, reply in each.items()}
    return {name: reply for name, reply in found.items() if not (isinstance(reply, dict) and "error" in reply)}


def _worker(
    name: str,
    stats: Mapping[str, Any],
    between_s: tuple[float, float],
    queues: Sequence[Mapping[str, Any]] | None,
    active: Sequence[Mapping[str, Any]] | None,
    registered: Sequence[str] | None,
    report: Mapping[str, Any],
    conf: Mapping[str, Any],
) -> Worker:
    facts = stats.get(FIELD) or {}
    text = str(report.get("ok") or "")
    transport = FIELD if facts else (_TRANSPORT.findall(text) or [""])[0]
    given = conf.get("broker_transport_options")
    return Worker(
        name,
        int(stats.get("pid") or 0),
        transport,
        bool(facts) or transport.startswith(("kombu_delayq", "delayq")),
        facts.get("versions") or dict(_PACKAGE.findall(text)),
        facts.get("options") or options_of_stock(given if isinstance(given, dict) else {}),
        [str(queue.get("name")) for queue in queues or ()],
        int(stats.get("prefetch_count") or 0),
        facts.get("clock"),
        between_s,
        [(str(task.get("name")), task["time_start"]) for task in active or () if task.get("time_start")],
        frozenset(str(task).partition(" ")[0] for task in registered or () if not str(task).startswith("celery.")),
    )
