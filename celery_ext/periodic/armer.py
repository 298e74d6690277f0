"""Arms the entries of an app in a thread of a worker or of beat."""

from contextlib import ExitStack, suppress
from typing import Any

from kombu.log import get_logger

from celery_ext.connection import open_store, patient_options
from celery_ext.periodic.arming import AWAY, Arming
from celery_ext.periodic.entries import Source
from celery_ext.periodic.messages import BEAT, ENTRY, RunMessages
from kombu_delayq.background import BackgroundWorker
from kombu_delayq.channel import DelayedChannel

logger = get_logger(__name__)


class Armer(BackgroundWorker):
    """Arms the entries of an app. Any number of processes may run one; a single one of them arms."""

    _logger = logger
    _thread_name = "delayq-periodic"
    _away = AWAY
    _end_line = "periodic entries can be armed again after %.1f s"
    _refused_line = "no periodic entry is armed by this process: %s"
    _fault_line = "arming periodic entries failed and starts again"

    def __init__(self, app: Any, source: Source) -> None:
        super().__init__()
        self._app = app
        self._arming = Arming(app, source, self.name)

    @property
    def leading(self) -> bool:
        """Whether this process arms."""
        return self._arming.leads

    def look_at(self, request: Any) -> None:
        """Looks at a message that a worker of this process has got: a stock beat's has no entry of ours."""
        headers = request.message.headers or {}
        if headers.get(BEAT) and not headers.get("retries") and ENTRY not in headers:
            self._arming.stock_beat = request.name

    def _outage_line(self, error: Exception) -> str:
        return f"no periodic entry can be armed: {type(error).__name__}: {error}"

    def _connect_and_work(self) -> None:
        options = patient_options(self._app.conf.broker_transport_options, hurried=True)
        with ExitStack() as cleanup:
            connection = cleanup.enter_context(self._app.connection_for_write(transport_options=options))
            store = open_store(connection, pool=DelayedChannel.separate_pool)
            cleanup.callback(store.close)
            self._arming.begin(store, RunMessages(self._app, connection.default_channel))
            cleanup.callback(self._give_back)
            while not self._stopping.is_set():
                wait_s = self._arming.step()
                self._outage.succeeded()
                self._stopping.wait(wait_s)

    def _give_back(self) -> None:
        with suppress(*AWAY):  # the lease ends by itself
            self._arming.end()
