"""What is looked at: an app, its broker and the workers behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from celery import Celery

from celery_ext.delays import is_installed
from celery_ext.doctor.servers import ClockOffset, Servers
from celery_ext.doctor.workers import Worker
from celery_ext.waiting import LONG_LOOK_S, all_queues
from kombu_delayq.options import CHECKED, Options, parse
from kombu_delayq.store import DelayStore, QueueStats


@dataclass
class Subject:
    """What is looked at.

    Attributes:
        app: The app; None if only a broker is named.
        store: The store of the broker; None until it answers.
        channel: A channel to it, through our transport; None until it answers.
        workers: The workers that answer; None if nobody has asked them.
        has_tasks: Whether the modules of the app with its tasks are imported, so that it knows all of them.
        installed: Whether ``celery_ext.install`` was called for the app. A worker that starts calls it itself, so this
            is what holds before a connection is made.
    """

    app: Celery | None = None
    store: DelayStore | None = None
    channel: Any = None
    workers: Sequence[Worker] | None = None
    has_tasks: bool = False
    installed: bool = field(init=False)

    def __post_init__(self) -> None:
        self.installed = self.app is not None and is_installed(self.app)

    @property
    def the_app(self) -> Celery:
        """The app, for a check that needs one."""
        assert self.app is not None  # noqa: S101  # such a check is not made without
        return self.app

    @property
    def the_store(self) -> DelayStore:
        """The store, for a check that needs Redis."""
        assert self.store is not None  # noqa: S101  # such a check is not made without
        return self.store

    @property
    def the_workers(self) -> Sequence[Worker]:
        """The workers, for a check that needs them."""
        assert self.workers is not None  # noqa: S101  # such a check is not made without
        return self.workers

    @cached_property
    def infos(self) -> Mapping[str, Mapping[str, Any]]:
        """The fields of INFO of each server, by its address; asked for once, for all checks."""
        return self.the_store.part(Servers).info()

    @cached_property
    def clocks(self) -> Mapping[str, ClockOffset]:
        """How far the clock of this process is from that of each server, by its address; measured once."""
        return self.the_store.part(Servers).clocks()

    @cached_property
    def reading(self) -> DelayStore:
        """The store to read from; looked at once, because a database beside Redis may be slow to be away."""
        return self.the_store.reading(counted=False)

    @cached_property
    def overview(self) -> list[QueueStats]:
        """Figures of all queues that Redis or the app know."""
        store = self.reading
        store.queues.names()  # fails while the node of a cluster is away that knows them
        return store.figures.overview(all_queues(store, self.app, look_s=LONG_LOOK_S))

    @property
    def transport_options(self) -> dict[str, Any]:
        """The app's transport options, as they are given."""
        return dict((self.app.conf.broker_transport_options or {}) if self.app is not None else {})

    def start(self, worker: str) -> str:
        """Returns what to start where nobody transfers; no worker of an app with ``transfer=False`` would."""
        if self.transport_options.get("transfer", True):
            return f"start {worker}, or `celery -A app delayq transfer`"
        return "start `celery -A app delayq transfer`: with transfer=False no worker of the app transfers"

    @property
    def options(self) -> Options:
        """Our options, checked: those of the store, else those of the app; without either, the defaults.

        Raises:
            InvalidOptions: The app has some that cannot be used.
        """
        if self.store is not None:
            return self.store.options
        return parse({name: value for name, value in self.transport_options.items() if name in CHECKED}, ())[0]
