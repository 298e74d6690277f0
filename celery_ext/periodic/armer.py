"""Arms the entries of an app in a thread of a worker or of beat."""

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from celery import states
from celery.exceptions import Ignore, Reject, Retry
from kombu.log import get_logger

from celery_ext.connection import open_store, patient_options
from celery_ext.periodic.arming import Arming
from celery_ext.periodic.entries import Source
from celery_ext.periodic.messages import BEAT, ENTRY, RunMessages
from celery_ext.periodic.store import PeriodicStore
from kombu_delayq.background import BackgroundWorker
from kombu_delayq.channel import DelayedChannel
from kombu_delayq.redis import AWAY
from kombu_delayq.store import DelayStore

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
        self._outcomes: dict[str, str] = {}  # of runs that have ended in this process, by entry

    @property
    def leading(self) -> bool:
        """Whether this process arms."""
        return self._arming.leads

    def look_at(self, request: Any) -> None:
        """Looks at a message that a worker of this process has got: a stock beat's has no entry of ours."""
        headers = request.message.headers or {}
        entry = headers.get(ENTRY)
        if entry is not None:
            self._await_end(request, str(entry))
        elif headers.get(BEAT) and not headers.get("retries"):
            self._arming.stock_beat = request.name

    def _await_end(self, request: Any, entry: str) -> None:
        """Notes what becomes of a run, once its pool has told that to the request."""
        succeed, fail = request.on_success, request.on_failure

        def on_success(result: Any, **kwargs: Any) -> Any:
            if not result[0]:  # else the request calls the other function
                self._outcomes[entry] = states.SUCCESS
            return succeed(result, **kwargs)

        def on_failure(exc_info: Any, *args: Any, **kwargs: Any) -> Any:
            self._outcomes[entry] = _state_of(exc_info.exception)
            return fail(exc_info, *args, **kwargs)

        request.on_success, request.on_failure = on_success, on_failure

    def _note_outcomes(self, store: DelayStore) -> None:
        noted = dict(self._outcomes)
        if noted:
            store.part(PeriodicStore).note_outcomes(noted)
            for entry, outcome in noted.items():  # only now, since Redis may be away
                if self._outcomes[entry] == outcome:
                    del self._outcomes[entry]

    def _outage_line(self, error: Exception) -> str:
        return f"no periodic entry can be armed: {type(error).__name__}: {error}"

    def _connect_and_work(self) -> None:
        options = patient_options(self._app.conf.broker_transport_options, hurried=True)
        with ExitStack() as cleanup:
            connection = cleanup.enter_context(self._app.connection_for_write(transport_options=options))
            store = open_store(connection, pool=DelayedChannel.separate_pool)
            cleanup.callback(store.close)
            self._arming.begin(store, RunMessages(self._app, connection.default_channel))
            cleanup.callback(self._give_back, store)
            while not self._stopping.is_set():
                self._note_outcomes(store)
                wait_s = self._arming.step()
                self._outage.succeeded()
                self._stopping.wait(wait_s)

    def _give_back(self, store: DelayStore) -> None:
        with suppress(*AWAY):  # the lease ends by itself
            self._arming.end()
            self._note_outcomes(store)


#: Errors with the state of the result; the first that fits counts.
_STATES: Mapping[type[BaseException], str] = {
    Retry: states.RETRY,
    Reject: states.REJECTED,
    Ignore: states.IGNORED,
    BaseException: states.FAILURE,
}


def _state_of(error: BaseException) -> str:
    """Returns what became of a run that has raised an error, as the state of its result."""
    error = error.exc if isinstance(error, ExceptionWithTraceback) else error
    return next(state for kind, state in _STATES.items() if isinstance(error, kind))
